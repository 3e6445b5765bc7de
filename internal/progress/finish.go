package progress

import (
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A campaign is to be done a tenth of the time left before its FinishBy, within these bounds, and not more than finishEarly before it.
const (
	leastMargin = time.Second
	mostMargin  = 30 * time.Second
	finishEarly = 50 * time.Second
)

// goal returns when a campaign is to be done.
func goal(by, now time.Time) time.Time {
	return by.Add(-min(max(by.Sub(now)/10, leastMargin), mostMargin))
}

// keeps reports whether a campaign that will be done at a time need not change its rate: counts are a second old, and a rate must not
// follow each of them.
func keeps(by, done, now time.Time) bool {
	at, early := goal(by, now), by.Sub(done)
	return early >= by.Sub(at)/2 && early <= finishEarly || done.Sub(at).Abs() <= by.Sub(now)/100
}

// spread computes the rates that spread what is left of campaigns, and finds out which will be late at any rate.
func (t *Tracker) spread(f *forecast, windows []delivery.WindowState, listed map[string]*delivery.Campaign, totals map[uint64]total) {
	rates, free, fast := map[string]int64{}, map[string]*delivery.Campaign{}, maps.Clone(f.todo) // those that may be late, without their FinishBy
	for id, c := range listed {
		if c.FinishBy.IsZero() || c.Status != delivery.StatusActive || c.Invalid != "" || c.Ended(f.now) || !t.ledger.knows(c) {
			continue
		}
		left := t.todo(c, totals[delivery.CampaignHash(id)])
		if left.Jobs == 0 {
			continue
		}
		if at, ok := f.done(c, left); !ok || at.After(c.FinishBy) {
			free[id] = c.WithoutFinish()
			delete(fast, c)
			fast[free[id]] = left
		}
		if !f.now.Before(c.FinishBy) {
			continue
		}
		if done, ok := c.Finish(f.now, left.units(), delivery.Unbounded); ok && !c.FinishRate.Zero() && keeps(c.FinishBy, done, f.now) {
			continue
		}
		needed, _ := c.Needed(f.now, goal(c.FinishBy, f.now), left.units())
		if rate, err := delivery.NewRate(delivery.Hourly(needed), time.Hour); err == nil && rate != c.FinishRate {
			rates[id] = delivery.Hourly(needed)
		}
	}
	t.ledger.rates = rates
	late := map[string]*Late{}
	if len(free) > 0 {
		f = newForecast(f.now, fast, windows)
	}
	for id, c := range free {
		if l := f.late(c, fast[c], listed[id].FinishBy); l != nil {
			late[id] = l
		}
	}
	t.sayLate(f.now, late, listed)
}

// sayLate shows which campaigns will be late, and writes the log. One that a forecast finds a little late may be in time.
func (t *Tracker) sayLate(now time.Time, late map[string]*Late, listed map[string]*delivery.Campaign) {
	overdue := map[string]float64{}
	for id, l := range late {
		by := listed[id].FinishBy
		if t.Shows(id) {
			overdue[id] = l.seconds()
		}
		if l.seconds() > max(2, by.Sub(now).Seconds()/50) && t.saidLate[id] != l.Limit {
			t.saidLate[id] = l.Limit
			t.log.Warn("the campaign will be late", "campaign", id, "why", "it "+l.String(), "finish_by", by.UTC().Format(time.RFC3339),
				"remedy", "raise the limit, or set a later finish_by; pacer plan "+id+" shows what is enough")
		}
	}
	for id := range t.saidLate {
		if late[id] != nil {
			continue
		}
		delete(t.saidLate, id)
		if c := listed[id]; c != nil && now.Before(c.FinishBy) { // else it was late, or is gone
			t.log.Info("the campaign is late no longer", "campaign", id)
		}
	}
	t.metrics.overdue.set(overdue)
}

// Late says by how much a campaign misses its FinishBy, and what is in the way.
type Late struct {
	Seconds *float64 `json:"seconds,omitempty" doc:"after finish_by; absent if what is set never lets it be done"`
	Limit   string   `json:"limit" doc:"what is in the way: send_rate, ramp, active_hours, a quota and its id, its publisher, or the time of its last job"`
}

// String is the end of a sentence about a campaign.
func (l *Late) String() string {
	if l.Seconds == nil {
		return "is never done: " + l.Limit + " is in the way"
	}
	return fmt.Sprintf("is done %s after its finish_by: %s is in the way", time.Duration(math.Ceil(*l.Seconds))*time.Second, l.Limit)
}

func (l *Late) seconds() float64 {
	if l.Seconds == nil {
		return math.Inf(1)
	}
	return *l.Seconds
}

// late returns by how much the campaign, which has no FinishBy in the forecast, misses one; nil: it does not. What takes longest is in the way, also
// once the time has passed.
func (f *forecast) late(c *delivery.Campaign, left Todo, by time.Time) *Late {
	sent, ok := f.doneUnder(c, left, c.Quotas)
	if !ok {
		return &Late{Limit: f.inTheWay(c, left, by)}
	}
	at := sent
	if f.near(left.Due) {
		at = latest(at, left.Due)
	}
	if !at.After(by) {
		return nil
	}
	l, seconds := &Late{Limit: "the time of its last job"}, at.Sub(by).Seconds()
	if before := latest(by, at.Add(-at.Sub(f.now)/10)); left.Coming && !f.now.Before(by) {
		l.Limit = "its publisher"
	} else if sent.After(before) {
		l.Limit = f.inTheWay(c, left, before)
	}
	l.Seconds = &seconds
	return l
}

// inTheWay returns which limit keeps the campaign from being done by a time: of its schedule, or else the slowest of its quotas.
func (f *forecast) inTheWay(c *delivery.Campaign, left Todo, by time.Time) string {
	inTime := func(c *delivery.Campaign) bool {
		at, ok := c.Finish(f.now, left.units(), delivery.Unbounded)
		return ok && !at.After(by)
	}
	open, flat := *c, *c
	open.Hours, flat.Ramp = nil, nil
	switch {
	case inTime(c):
	case inTime(&open):
		return "active_hours"
	case inTime(&flat):
		return "ramp"
	default:
		return "send_rate"
	}
	limit, last := "send_rate", time.Time{}
	for _, q := range c.Quotas {
		at, ok := f.doneUnder(c, left, []*delivery.Quota{q})
		if !ok {
			return "quota " + q.ID
		}
		if at.After(last) {
			limit, last = "quota "+q.ID, at
		}
	}
	return limit
}
