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

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/notation"
)

// fillReplay counts what a replay would do, and asks.
func fillReplay(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Replay dead letters"
	data := struct {
		Search       *search
		Since, Until string
		Outcome      deadletter.ReplayReport
		Most         int
		Fault        string
	}{Search: searchOf(query), Most: replay.MaxLetters}
	now := time.Now().UTC().Truncate(time.Second)
	filter, err := data.Search.filter()
	if filter.Last > 0 {
		filter.Since = now.Add(-filter.Last)
	}
	if filter.Until.IsZero() {
		filter.Until = now // what has died since it was counted is left out
	}
	if data.Until = notation.Instant(&filter.Until); !filter.Since.IsZero() {
		data.Since = notation.Instant(&filter.Since)
	}
	if err != nil {
		c.status, data.Fault = api.StatusOf(err), view.Line(err)
	} else if outcome, err := s.watcher.Sources().Replays.Count(ctx, deadletter.ReplayOptions{Filter: filter.Filter}); err != nil {
		data.Fault = "Not counted: " + view.Line(err)
		if errors.Is(err, replay.ErrSearching) {
			c.status = http.StatusServiceUnavailable
		}
	} else {
		data.Outcome = outcome
	}
	c.Data = data
}

func fillReplays(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Replays"
	list := s.watcher.Replays(ctx)
	c.Data = struct {
		List    []replay.Job
		Running bool
	}{list, slices.ContainsFunc(list, func(j replay.Job) bool { return j.State == "running" })}
}

// startReplay begins what fillReplay has counted: what has died since is left out.
func startReplay(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	filter, err := searchOf(form).filter()
	o := deadletter.ReplayOptions{Filter: filter.Filter, DropExpiry: form.Has("drop-expiry")}
	limit, noLimit := strconv.Atoi(form.Get("limit"))
	if o.Limit = limit; o.DropExpiry {
		expired, err := strconv.Atoi(form.Get("expired"))
		if err != nil || expired < 0 {
			return "", nil, catalog.Fault(catalog.ErrInvalid, "The form does not say how many letters have expired.")
		}
		o.Limit = min(limit+min(expired, replay.MaxLetters), replay.MaxLetters)
	}
	if err != nil || o.Until.IsZero() || noLimit != nil || o.Limit < 1 || o.Limit > replay.MaxLetters {
		return "", nil, catalog.Fault(catalog.ErrInvalid, "The form does not say which letters it is about.")
	}
	rate := strings.TrimSpace(form.Get("rate"))
	if o.Rate, err = view.ParseRate(rate); err != nil || o.Rate.Zero() {
		return "", nil, catalog.Fault(catalog.ErrInvalid, "%q is not a rate above 0, such as 100 or 150/m.", notation.Shorten(rate))
	}
	if err := view.CheckReason("why", form.Get("why")); err != nil {
		return "", nil, err
	}
	_, err = s.watcher.Sources().Replays.Start(auth.Of(ctx).Actor(), form.Get("why"), rate, o)
	if errors.Is(err, replay.ErrBusy) {
		err = catalog.Fault(catalog.ErrStale, "%s.", err)
	}
	return "replays?done=replay", nil, err
}

func stopReplay(_ context.Context, s *Site, form url.Values) (string, *retry, error) {
	if !s.watcher.Sources().Replays.Stop(form.Get("id")) {
		return "", nil, catalog.Fault(catalog.ErrNotFound, "No such replay is running.")
	}
	return "replays?done=stop", nil, nil
}
