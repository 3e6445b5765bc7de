package progress

import (
	"cmp"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// forecast predicts when campaigns with a backlog will finish under the quotas they share. It is made for one moment.
type forecast struct {
	now   time.Time
	todo  map[*delivery.Campaign]Todo
	rates map[*delivery.Campaign]float64                       // of those that send now, units per second
	parts map[*delivery.Quota]map[*delivery.Campaign][]float64 // of the units of each window, between 0 and 1
	seen  map[string][]delivery.WindowState                    // by quota; nil: nothing is known
}

// Todo is what a campaign has still to send.
type Todo struct {
	Jobs   float64
	Coming bool      // none of them is published yet
	Weight float64   // of a job, on average
	Due    time.Time // before which the last of those in timers is not sent; zero: at once; more than ten years ahead: it is not known
}

func (t Todo) units() float64 { return t.Jobs * t.Weight }

// newForecast makes a forecast for the campaigns that have jobs to send, from the windows as last observed.
func newForecast(now time.Time, waiting map[*delivery.Campaign]Todo, windows []delivery.WindowState) *forecast {
	f := &forecast{
		now: now, todo: waiting, rates: map[*delivery.Campaign]float64{}, parts: map[*delivery.Quota]map[*delivery.Campaign][]float64{},
	}
	if windows != nil {
		f.seen = hold.Windows(windows)
	}
	for c := range waiting {
		rate := rateNow(c, now)
		if rate == 0 {
			continue
		}
		f.rates[c] = rate
		for _, q := range c.Quotas {
			if !binds(q) {
				continue
			}
			if f.parts[q] == nil {
				f.parts[q] = map[*delivery.Campaign][]float64{}
			}
			f.parts[q][c] = nil
		}
	}
	for q, parts := range f.parts {
		for _, w := range q.Windows {
			f.divide(parts, sustained(w))
		}
	}
	return f
}

// rateNow returns what a campaign may send now by its schedule and its status, in units per second.
func rateNow(c *delivery.Campaign, now time.Time) float64 {
	if c.Status != delivery.StatusActive || c.Invalid != "" || !c.Active(now) || c.Ended(now) {
		return 0
	}
	rate, _, _ := c.RateAt(now)
	return rate.PerSecond()
}

// binds reports whether the quota limits units. The effect of a quota of bytes is not known before the jobs are read.
func binds(q *delivery.Quota) bool {
	return q.Mode != delivery.ModeShadow && q.Unit != delivery.UnitBytes && q.Exempt < 100
}

// sustained returns the long-term rate of the window, in units per second.
func sustained(w delivery.Window) float64 { return float64(w.Limit) / w.Span.Seconds() }

// share is a campaign's use of a window, in units.
type share struct {
	campaign           *delivery.Campaign
	weight, rate, left float64
	got                float64 // per second
}

// divide appends, for each campaign, its part of the units that pass a window until the campaign has finished. The share that an earlier
// finisher leaves is not divided anew.
func (f *forecast) divide(parts map[*delivery.Campaign][]float64, rate float64) {
	var open []*share
	for c := range parts {
		open = append(open, &share{campaign: c, weight: float64(max(1, c.PriorityWeight)), rate: f.rates[c], left: f.todo[c].units()})
	}
	slices.SortFunc(open, func(a, b *share) int { return cmp.Compare(a.rate/a.weight, b.rate/b.weight) })
	used, passed := divideRate(open, rate), 0.0
	slices.SortFunc(open, func(a, b *share) int { return cmp.Compare(a.left*b.got, b.left*a.got) })
	for _, s := range open { // in the order in which they finish
		part := 0.0
		if s.got > 0 {
			part = s.left / (passed + s.left/s.got*used)
		}
		parts[s.campaign] = append(parts[s.campaign], part)
		passed, used = passed+s.left, used-s.got
	}
}

// state returns the state of a window of a quota, if it was seen.
func (f *forecast) state(q *delivery.Quota, window int) (s delivery.WindowState, seen bool) {
	for _, s := range f.seen[q.ID] {
		if s.Window == window {
			return s, true
		}
	}
	return s, false
}

// part returns the campaign's part of the units that pass a window of a quota.
func (f *forecast) part(q *delivery.Quota, c *delivery.Campaign, window int) float64 {
	if parts := f.parts[q][c]; parts != nil {
		return parts[window]
	}
	return 1
}

// divideRate divides the rate of a window by weight and returns how much of it is used. A campaign that needs less leaves
// the rest to the others: shares are in the order of their rates by weight.
func divideRate(shares []*share, rate float64) (used float64) {
	weights := 0.0
	for _, s := range shares {
		weights += s.weight
	}
	for _, s := range shares {
		s.got = min(s.rate, (rate-used)*s.weight/weights)
		used, weights = used+s.got, weights-s.weight
	}
	return used
}

// done returns when the campaign will have sent these jobs; ok is false if that cannot be predicted. The time is the
// latest of those by the schedule, by each window, and by the timers.
func (f *forecast) done(c *delivery.Campaign, jobs Todo) (at time.Time, ok bool) {
	at, ok = f.doneUnder(c, jobs, c.Quotas)
	at = latest(at, jobs.Due)
	return at, ok && f.near(at)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// near reports whether a time is near enough to be told.
func (f *forecast) near(at time.Time) bool { return at.Sub(f.now).Seconds() < longest }

// doneUnder is done under some of its quotas, if no job waits in timers.
func (f *forecast) doneUnder(c *delivery.Campaign, jobs Todo, quotas []*delivery.Quota) (at time.Time, ok bool) {
	begin, ok := c.Finish(f.now, momentary, delivery.Unbounded)
	if !ok {
		return at, false
	}
	if c.Local != nil { // somewhere it is day
		begin = f.now
	}
	units := jobs.units()
	var windows []window
	most, enough := delivery.Unbounded, true // what windows allow that are not observed, or whose counts are estimates
	for _, q := range quotas {
		if !binds(q) {
			continue
		}
		for i, w := range q.Windows {
			part := f.part(q, c, i)
			state, seen := f.state(q, i)
			if q.Spend == delivery.SpendEven || q.Mode == delivery.ModeEventual || !seen {
				most = min(most, part*sustained(w))
			}
			if seen && q.Mode != delivery.ModeEventual {
				windows = append(windows, newWindow(w, state, part, jobs.Weight, begin))
				enough = enough && part*float64(state.Remaining) >= units
			}
		}
	}
	if at, ok = c.Finish(f.now, units, delivery.Unbounded); !ok {
		return at, false
	}
	units = max(0, units-jobs.Weight) + momentary // the last job goes as soon as the windows have any room
	later := func(from time.Time, units, most float64) {
		next, can := c.Finish(from, units, most)
		if ok = ok && can; next.After(at) {
			at = next
		}
	}
	if p := (&path{min(c.Rate.PerSecond(), most), windows}); !enough {
		in := p.finish(units)
		if !(in < longest) {
			return at, false
		}
		last := begin.Add(time.Duration(in * float64(time.Second)))
		later(last, momentary, delivery.Unbounded)
		if closes := c.Hours.NextChange(begin); !closes.IsZero() && closes.Before(last) {
			most = p.inHours(c.Hours)
		}
	}
	later(f.now, units, most)
	return at, ok
}

const (
	momentary = 2e-6                      // so few units that sending them takes no time
	longest   = 10 * 366 * 24 * 60 * 60.0 // seconds; more is not forecast
)

// waits reports whether a quota of the campaign keeps it from sending at its rate in the next second, or may do so
// because its windows have not been observed.
func (f *forecast) waits(c *delivery.Campaign) bool {
	for _, q := range c.Quotas {
		if !binds(q) {
			continue
		}
		for w := range q.Windows {
			if s, seen := f.state(q, w); !seen || float64(s.Remaining) < f.rates[c] {
				return true
			}
		}
	}
	return false
}
