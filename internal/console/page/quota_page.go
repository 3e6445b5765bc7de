package page

import (
	"context"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// spans are how far back a page may look, and steps how much time one point of a plot covers.
var (
	spans   = []string{"1d", "1h", "7d", "30d"}
	stepsOf = map[string]time.Duration{"1h": time.Minute, "1d": 10 * time.Minute, "7d": time.Hour, "30d": 6 * time.Hour}
)

func fillQuota(ctx context.Context, s *Site, query url.Values, c *content) {
	q := c.quota(query.Get("id"))
	if q == nil {
		return
	}
	c.Title = q.ID
	data := struct {
		Quota   *view.Quota
		Last    string
		Spans   []string
		Step    string
		Plots   []*plot
		Used    *plot
		Usage   []catalog.Usage
		Heads   []string
		NoUsage string
		Shares  view.Shares
	}{Quota: q, Last: oneOf(query.Get("last"), spans), Spans: []string{"1h", "1d", "7d", "30d"}}
	step := stepsOf[data.Last]
	data.Step = notation.FormatSpan(step)
	switch {
	case q.Mode == delivery.ModeEventual:
		data.NoUsage = "In mode eventual the use of a quota is not kept."
	case q.Per != "":
		data.NoUsage = "What is used is kept for each " + q.Per + "."
	default:
		last, _ := notation.ParseSpan(data.Last) // one of those above
		usage, err := s.watcher.Usage(ctx, q.ID, last, step)
		if err != nil {
			data.NoUsage = "What was used is not known: " + view.Line(err)
			break
		}
		data.Usage = usage
		data.Plots, data.Heads = burnDown(usage, step)
		switch data.Used = spent(usage); {
		case len(data.Plots) > 0:
		case len(data.Heads) > 0:
			data.NoUsage = "All its windows are shorter than " + data.Step + ", the time between two points here; look at less time."
		default:
			data.NoUsage = "The use of a quota is kept only with a window of a minute or longer."
		}
	}
	data.Shares = c.State.Shares(q.ID, view.PageSize)
	c.Data = data
}
