package delivery

import (
	"cmp"
	"math"
	"time"
)

// Unbounded is a bound of Finish that does not bind.
const Unbounded = math.MaxFloat64

const (
	// finishSteps bounds the stretches that Finish looks at: every step of a ramp and a good many hours.
	finishSteps = MaxRampSteps + 4096
	// finishWithin is how far ahead Finish looks.
	finishWithin = 10 * 366 * 24 * time.Hour
	week         = 7 * 24 * time.Hour
)

// Finish is when the campaign will have sent units more units from now on, limited to most units a second. It follows the steps of the
// ramp, the active hours, the start and the end. It is false if the campaign does not send, ends before, or needs more than ten years. It
// computes in floats, so it is for people and gauges only.
//
// Where hours are those of recipients, it supposes all to be in one zone, and then waits until the hours have begun everywhere.
func (c *Campaign) Finish(now time.Time, units, most float64) (at time.Time, ok bool) {
	if c.Local != nil {
		one := *c
		if one.Local, one.Hours = nil, c.Local.In(cmp.Or(c.Zone, time.UTC)); c.Hours != nil {
			open, _ := c.Hours.Weekly()
			units *= week.Seconds() / open.Seconds()
		}
		if at, ok = one.Finish(now, units, most); ok {
			at = c.Local.lastOpening(at)
		}
		return at, ok && !c.Ended(at)
	}
	if c.Status != StatusActive || c.Invalid != "" || c.Rate.Zero() || most <= 0 && units > 0 {
		return time.Time{}, false
	}
	p := newPlan(c, now, most)
	for range finishSteps {
		if c.Ended(p.at) || p.at.Sub(now) > finishWithin {
			return time.Time{}, false
		}
		if units < 1e-6 { // a rounding error does not wait for the next morning
			return p.at, true
		}
		units -= p.skipWeeks(units)
		until := c.nextChange(p.at, p.step)
		length := finishWithin.Seconds()
		if !until.IsZero() {
			length = min(length, until.Sub(p.at).Seconds())
		}
		sent, took := p.send(units, length)
		if units -= sent; took < length || until.IsZero() {
			return p.at.Add(seconds(took)), took < finishWithin.Seconds()
		}
		p.goTo(until)
	}
	return time.Time{}, false
}

// Needed is the lowest bound of the rate with which the campaign, once active, sends units from now until then, in units per second,
// regardless of its FinishBy. If none does, ok is false, and it is the campaign's rate. Like Finish, it is an estimate.
func (c *Campaign) Needed(now, until time.Time, units float64) (perSecond float64, ok bool) {
	free := c.WithoutFinish()
	free.Status = StatusActive
	inTime := func(most float64) bool {
		at, ok := free.Finish(now, units, most)
		return ok && !at.After(until)
	}
	least, most := units/until.Sub(now).Seconds(), c.Rate.PerSecond()
	if !inTime(most) {
		return most, false
	}
	for most > least*1.00001 {
		if middle := math.Sqrt(least * most); inTime(middle) {
			most = middle
		} else {
			least = middle
		}
	}
	return most, true
}

// WithoutFinish is the campaign without its FinishBy.
func (c *Campaign) WithoutFinish() *Campaign {
	free := *c
	free.FinishBy = time.Time{}
	return &free
}

// plan is a campaign's schedule from a current instant on; the instant moves forward.
type plan struct {
	campaign *Campaign
	most     float64 // units per second
	at       time.Time

	perSecond float64   // of the rate in force
	height    int64     // of the ramp, while there is a step
	step      time.Time // of the ramp, zero when there is none to come
}

func newPlan(c *Campaign, now time.Time, most float64) *plan {
	p := &plan{campaign: c, most: most, at: now.Round(0)}
	rate, n, step := c.ramped(p.at)
	p.perSecond, p.step = rate.PerSecond(), step
	if c.Ramp != nil {
		p.height, _ = c.Ramp.climb(c.Ramp.Start, n, c.Ramp.top(c.Rate))
	}
	return p
}

// send returns how many of the units are sent in length seconds without a change, and how long that takes, at most
// length.
func (p *plan) send(units, length float64) (sent, took float64) {
	if !p.campaign.Active(p.at) || p.campaign.Ended(p.at) {
		return 0, length
	}
	rate := p.rate()
	took = min(units/rate, length)
	return took * rate, took
}

// rate is the rate in force, in units per second.
func (p *plan) rate() float64 {
	rate := min(p.perSecond, p.most)
	if p.at.Before(p.campaign.FinishBy) {
		rate = min(rate, p.campaign.spread().PerSecond())
	}
	return rate
}

// skipWeeks skips as many identical weeks as it can, and returns the units sent in them: a backlog of years is then as
// cheap to compute as one of a day.
func (p *plan) skipWeeks(units float64) (sent float64) {
	c := p.campaign
	if c.Hours == nil || len(c.Hours.edges) == 0 || p.at.Before(c.StartsAt) || !p.step.IsZero() {
		return 0
	}
	open, _ := c.Hours.Weekly()
	weekly := p.rate() * open.Seconds()
	weeks := math.Ceil(units/weekly) - 1
	_, shift := p.at.In(c.Hours.zone).ZoneBounds()
	finish := c.FinishBy
	if !p.at.Before(finish) {
		finish = time.Time{}
	}
	for _, end := range []time.Time{shift, c.EndsAt, finish, p.at.Add(finishWithin)} {
		if !end.IsZero() {
			weeks = min(weeks, math.Floor(end.Sub(p.at).Hours()/week.Hours())-1)
		}
	}
	if weeks <= 0 {
		return 0
	}
	p.at = p.at.Add(time.Duration(weeks) * week)
	return weeks * weekly
}

// goTo moves to a later instant, at most the next step of the ramp.
func (p *plan) goTo(at time.Time) {
	p.at = at
	if p.step.IsZero() || at.Before(p.step) {
		return
	}
	c := p.campaign
	top := c.Ramp.top(c.Rate)
	p.height, _ = c.Ramp.climb(p.height, 1, top)
	if p.height >= top {
		p.perSecond, p.step = c.Rate.PerSecond(), time.Time{}
		return
	}
	height := min(c.Ramp.roundUp(p.height), top)
	p.perSecond, p.step = float64(height)/float64(rateScale)/c.Ramp.Per.Seconds(), p.step.Add(c.Ramp.Every)
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, finishWithin.Seconds()) * float64(time.Second))
}
