package page

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// search is a filter of dead letters, as it was typed.
type search struct {
	Campaign, Reason, JobID string
	Destination             string
	Last, Since, Until      string // Last only without the others
	After                   string
}

func searchOf(q url.Values) *search {
	s := &search{
		Campaign: q.Get("campaign"), Reason: q.Get("reason"), JobID: q.Get("job"), Destination: q.Get("destination"), Since: strings.TrimSpace(q.Get("since")), Until: strings.TrimSpace(q.Get("until")),
		Last: oneOf(q.Get("last"), spans), After: q.Get("after"),
	}
	if s.Since != "" || s.Until != "" {
		s.Last = ""
	}
	return s
}

// Query formats the search as the query of a URL, from the newest letter on.
func (s *search) Query() string { return s.from("") }

// Here formats the search as the query of a URL, of the page that is shown.
func (s *search) Here() string { return s.from(s.After) }

// from formats the search as the query of a URL, of the page after a place.
func (s *search) from(after string) string {
	return view.Query(map[string]string{
		"campaign": s.Campaign, "reason": s.Reason, "job": s.JobID, "destination": s.Destination, "last": s.Last, "since": s.Since, "until": s.Until, "after": after,
	})
}

// Time says in words which time it is about.
func (s *search) Time() string {
	switch {
	case s.Last != "":
		return "of the last " + s.Last
	case s.Until == "":
		return "since " + s.Since
	case s.Since == "":
		return "until " + s.Until
	}
	return "from " + s.Since + " until " + s.Until
}

// typedTime reads a time as a browser sends it, or with a zone; in UTC without one.
func typedTime(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, catalog.Fault(catalog.ErrInvalid, "%s: %q is not a time such as 2026-11-30 09:00", name, notation.Shorten(text))
}

// filter is the search as sources take it.
func (s *search) filter() (f view.LetterFilter, err error) {
	f.After, f.Filter = s.After, deadletter.Filter{Campaign: s.Campaign, Reason: delivery.Reason(s.Reason), JobID: s.JobID, To: s.Destination}
	if f.Last, err = notation.ParseSpan(s.Last); err == nil {
		return f, nil
	}
	if f.Since, err = typedTime("since", s.Since); err == nil {
		f.Until, err = typedTime("until", s.Until)
	}
	if err == nil && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		err = catalog.Fault(catalog.ErrInvalid, "since: must lie before until")
	}
	return f, err
}

func fillDead(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Dead letters"
	data := struct {
		Search  *search
		Spans   []string
		Found   view.Found
		Looking bool   // there is nothing to be shown yet
		Older   string // query of the next page; "" on the last
		Fault   string
	}{Search: searchOf(query), Spans: []string{"1h", "1d", "7d", "30d"}}
	filter, err := data.Search.filter()
	if err == nil {
		data.Found, err = s.watcher.FindLetters(ctx, filter, !query.Has("page")) // the stream watches
	}
	switch {
	case errors.Is(err, view.ErrAsking):
		data.Looking = true
	case errors.Is(err, replay.ErrSearching), errors.Is(err, catalog.ErrInvalid):
		c.status = api.StatusOf(err)
		data.Fault = "Not looked for: " + view.Line(err)
	case err != nil:
		data.Fault = "Dead letters are not known: " + view.Line(err)
	default:
		if next := data.Found.Next; next != "" {
			data.Older = data.Search.from(next)
		}
	}
	c.Data = data
}
