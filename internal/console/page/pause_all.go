package page

import (
	"context"
	"net/url"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// pausedTogether is the reason of a pause of all campaigns. Those with it are resumed together.
const pausedTogether = "pause all"

func fillPauseAll(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Pause all"
	data := struct {
		Active, Paused int
		Most           int
		Fault          string
	}{Active: active(c.State), Most: view.MaxBulk}
	if s.watcher.Sources().Catalog == nil {
		data.Fault = noDatabase
	} else if ids, err := s.watcher.Sources().Catalog.PausedFor(ctx, pausedTogether); err != nil {
		data.Fault = "Which campaigns were paused together is not known: " + view.Line(err)
	} else {
		data.Paused = len(ids)
	}
	c.Data = data
}

func active(state *view.State) (n int) {
	for _, c := range state.Campaigns {
		if c.Status == string(delivery.StatusActive) {
			n++
		}
	}
	return n
}

// pauseAll pauses all campaigns that are active, if they are as many as were shown.
func pauseAll(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	ids, err := s.expected(ctx, view.CampaignFilter{State: string(delivery.StatusActive)}, form)
	if err != nil {
		return "", nil, err
	}
	by := catalog.ActorOf(ctx)
	by.Reason = pausedTogether
	return "campaigns?done=all-paused", nil, s.many(catalog.WithActor(ctx, by), ids, catalog.BulkChange{Action: "pause"})
}

// resumeAll resumes the campaigns that were paused together, and no others.
func resumeAll(ctx context.Context, s *Site, _ url.Values) (string, *retry, error) {
	ids, err := s.watcher.Sources().Catalog.PausedFor(ctx, pausedTogether)
	if err == nil {
		err = s.many(ctx, ids, catalog.BulkChange{Action: "resume"})
	}
	return "campaigns?done=all-resumed", nil, err
}
