package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// muchFaster is from how many times the present rate on a new one has to be confirmed.
const muchFaster = 10

// newRate is what another rate of a campaign would mean.
type newRate struct {
	ID, Was, Rate, Reason, Note string
	Revision                    int64
	Times                       string // how it differs from now, if that has to be confirmed
	Quotas                      []string
	DoneNow, Done               *time.Time // nil: not known
	Fault                       string
}

// per is a unit of rates.
type per struct{ Short, Name string }

var pers = []per{{"s", "per second"}, {"m", "per minute"}, {"h", "per hour"}, {"d", "per day"}}

// typedRate reads the rate that was typed, with the unit that was chosen beside it.
func typedRate(form url.Values) string {
	rate := strings.TrimSpace(form.Get("rate"))
	if per := form.Get("per"); per != "" && per != "s" && rate != "" && !strings.Contains(rate, "/") {
		rate += "/" + per
	}
	return rate
}

// rateOf returns the units per second of a rate as people write it; 0 if it is none.
func rateOf(text string) float64 {
	micros, per, err := notation.ParseRate(text)
	if err != nil || per <= 0 {
		return 0
	}
	return float64(micros) / 1e6 / per.Seconds()
}

// splitRate divides a rate into its units and what they are of, as the form has them.
func splitRate(rate string) (units, per string) {
	units, per, _ = strings.Cut(rate, "/")
	if len(per) == len("1m") {
		per = strings.TrimPrefix(per, "1")
	}
	return units, cmp.Or(per, "s")
}

func (s *Site) meaning(ctx context.Context, now *catalog.CampaignRow, to, reason string) (*newRate, error) {
	m := &newRate{ID: now.ID, Was: now.Rate, Rate: to, Reason: reason, Revision: now.Revision, Note: now.Note}
	if _, _, err := notation.ParseRate(to); err != nil {
		return m, catalog.Fault(catalog.ErrInvalid, "%s", err)
	}
	was, is := rateOf(now.Rate), rateOf(to)
	switch {
	case is == 0 && was > 0:
		m.Times = "and send nothing"
	case was == 0 && is > 0:
		m.Times = "and begin to send"
	case was > 0 && is >= muchFaster*was:
		m.Times = rate(is/was) + " times as fast"
	}
	state := s.watcher.Look(ctx)
	if p, err := state.Plan(now.ID, view.WhatIf{}); err == nil {
		m.DoneNow = p.DoneAt
	}
	if p, err := state.Plan(now.ID, view.WhatIf{Rate: to}); err == nil {
		m.Done = p.DoneAt
	}
	for _, id := range now.Quotas {
		q := state.Quota(id)
		if q == nil || q.Mode == delivery.ModeShadow || q.Rollout == 0 || q.Unit == delivery.UnitBytes || is <= 0 {
			continue
		}
		for _, w := range q.Windows {
			if w.Remaining == nil || is*w.Seconds <= float64(w.Limit) {
				continue
			}
			took := time.Duration(float64(*w.Remaining) / is * float64(time.Second)).Round(time.Second)
			m.Quotas = append(m.Quotas, fmt.Sprintf("It uses what is left of %s in quota %s (%s of %s) in %s, and then waits: %s a second is what that allows on average.",
				w.Span, id, number(*w.Remaining), number(w.Limit), coarse(took), rate(float64(w.Limit)/w.Seconds)))
		}
	}
	return m, nil
}

func fillRate(ctx context.Context, s *Site, query url.Values, c *content) {
	if now := campaigns.row(ctx, s, query.Get("id"), c); now != nil {
		c.Title = "Rate of " + now.ID
		m, err := s.meaning(ctx, now, typedRate(query), query.Get("reason"))
		if err != nil {
			m.Fault, c.status = view.Line(err), api.StatusOf(err)
		}
		c.Data = m
	}
}

// setRate changes only the rate. One that is much faster has to be confirmed. It shows a conflict as that of the whole form.
func setRate(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, rate := form.Get("id"), typedRate(form)
	form.Set("rate", rate) // the form that is shown again has no unit beside it
	at, err := revisionOf(form)
	if err != nil {
		return "", nil, err
	}
	now, err := s.watcher.Sources().Campaign(ctx, id)
	if err != nil {
		return "", nil, err
	}
	m, err := s.meaning(ctx, now, rate, form.Get("reason"))
	if err != nil {
		m.Fault = view.Line(err)
		return "", &retry{page: "rate", data: m}, err
	}
	if m.Times != "" && form.Get("confirm") != "yes" {
		return "", &retry{page: "rate", data: m}, nil
	}
	_, err = s.watcher.Sources().WriteCampaign(ctx, id, &catalog.CampaignChange{Rate: &rate}, catalog.Precondition{At: at})
	if errors.Is(err, catalog.ErrStale) {
		return "", campaigns.again(ctx, s, form, "rate", err), err
	}
	return campaigns.page(id, "changed"), nil, err
}
