package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// fillReplay counts what a replay would do, and asks.
func fillReplay(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Replay dead letters"
	last := oneOf(query.Get("last"), spans)
	span, _ := notation.ParseSpan(last) // one of those
	now := time.Now().UTC().Truncate(time.Second)
	data := struct {
		Filter  replay.Filter
		Last    string
		Outcome replay.Outcome
		Most    int
		Fault   string
	}{Last: last, Most: replay.MaxLetters, Filter: replay.Filter{
		Campaign: query.Get("campaign"), Reason: query.Get("reason"), JobID: query.Get("job"), Since: now.Add(-span), Until: now,
	}}
	if jobs := s.looker.Sources().Replays; jobs == nil {
		data.Fault = "Dead letters cannot be read here."
	} else if outcome, err := jobs.Count(ctx, data.Filter); err != nil {
		data.Fault = "Not counted: " + brief(err)
		if errors.Is(err, replay.ErrCounting) {
			c.status = http.StatusServiceUnavailable
		}
	} else {
		data.Outcome = outcome
	}
	c.Data = data
}

func fillReplays(_ context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Replays"
	var list []replay.Job
	if jobs := s.looker.Sources().Replays; jobs != nil {
		list = jobs.List()
	}
	c.Data = struct {
		List    []replay.Job
		Running bool
	}{list, slices.ContainsFunc(list, func(j replay.Job) bool { return j.State == "running" })}
}

// startReplay begins what fillReplay has counted: what has died since is left out.
func startReplay(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	jobs := s.looker.Sources().Replays
	if jobs == nil {
		return "", nil, view.Fault(view.ErrForbidden, "Dead letters cannot be read here.")
	}
	r := replay.Request{Rate: strings.TrimSpace(form.Get("rate")), Filter: replay.Filter{
		Campaign: form.Get("campaign"), Reason: form.Get("reason"), JobID: form.Get("job"),
	}}
	var errs [3]error
	r.Limit, errs[0] = strconv.Atoi(form.Get("limit"))
	r.Since, errs[1] = time.Parse(time.RFC3339, form.Get("since"))
	r.Until, errs[2] = time.Parse(time.RFC3339, form.Get("until"))
	if errors.Join(errs[:]...) != nil || r.Limit < 1 || r.Limit > replay.MaxLetters {
		return "", nil, view.Fault(view.ErrInvalid, "The form does not say which letters it is about.")
	}
	if micros, _, err := notation.ParseRate(r.Rate); err != nil || micros == 0 {
		return "", nil, view.Fault(view.ErrInvalid, "%q is not a rate above 0, such as 100 or 150/m.", notation.Shorten(r.Rate))
	}
	if err := view.CheckReason("why", form.Get("why")); err != nil {
		return "", nil, err
	}
	_, err := jobs.Start(auth.Of(ctx).Actor(), form.Get("why"), r)
	if errors.Is(err, replay.ErrBusy) {
		err = view.Fault(view.ErrStale, "%s.", err)
	}
	return "replays?done=replay", nil, err
}

func stopReplay(_ context.Context, s *Site, form url.Values) (string, *retry, error) {
	if jobs := s.looker.Sources().Replays; jobs == nil || !jobs.Stop(form.Get("id")) {
		return "", nil, view.Fault(view.ErrNotFound, "No such replay is running.")
	}
	return "replays?done=stop", nil, nil
}
