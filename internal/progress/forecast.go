package progress

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// forecast predicts when campaigns with a backlog will finish under the quotas they share. It is made for one moment.
type forecast struct {
	now    time.Time
	rates  map[*delivery.Campaign]float64                    // of those that send now, units per second
	shares map[*delivery.Quota]map[*delivery.Campaign]*share // of the quotas that bind at least one of them
	seen   map[string]map[int]delivery.WindowState           // by quota and window
}

// share is a campaign's part of a quota.
type share struct {
	campaign *delivery.Campaign
	weight   float64
	wish     float64   // units per second that it could send by its weight
	parts    []float64 // of each window, between 0 and 1
}

// newForecast makes a forecast for the campaigns with waiting jobs, from the windows as last observed.
func newForecast(now time.Time, waiting []*delivery.Campaign, windows []delivery.WindowState) *forecast {
	f := &forecast{
		now: now, rates: map[*delivery.Campaign]float64{}, seen: map[string]map[int]delivery.WindowState{},
		shares: map[*delivery.Quota]map[*delivery.Campaign]*share{},
	}
	for _, w := range windows {
		if f.seen[w.Quota] == nil {
			f.seen[w.Quota] = map[int]delivery.WindowState{}
		}
		f.seen[w.Quota][w.Window] = w
	}
	for _, c := range waiting {
		rate := rateNow(c, now)
		if rate == 0 {
			continue
		}
		f.rates[c] = rate
		for _, q := range c.Quotas {
			if !binds(q) {
				continue
			}
			if f.shares[q] == nil {
				f.shares[q] = map[*delivery.Campaign]*share{}
			}
			weight := float64(max(1, c.PriorityWeight))
			f.shares[q][c] = &share{campaign: c, weight: weight, wish: rate / weight}
		}
	}
	for q, shares := range f.shares {
		order := slices.SortedFunc(maps.Values(shares), func(a, b *share) int { return cmp.Compare(a.wish, b.wish) })
		for _, w := range q.Windows {
			f.divide(order, sustained(q, w))
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
func sustained(q *delivery.Quota, w delivery.Window) float64 {
	return float64(w.Limit) / w.Span.Seconds()
}

// divide divides the rate of a window among campaigns by weight, as the quota engine does in the long run; what one
// campaign cannot use goes to the others. The smallest wish is served first, so that what it leaves goes to the larger
// ones.
func (f *forecast) divide(shares []*share, all float64) {
	left, weights := all, 0.0
	for _, s := range shares {
		weights += s.weight
	}
	got := make([]float64, len(shares))
	for i, s := range shares {
		got[i] = min(f.rates[s.campaign], left*s.weight/weights)
		left, weights = left-got[i], weights-s.weight
	}
	for i, s := range shares {
		part := 0.0
		if all > 0 {
			part = (got[i] + left) / all // what is left over is there for each of them
		}
		s.parts = append(s.parts, part)
	}
}

// done returns when that many jobs of the campaign, each of a weight, will have been sent; ok is false if that cannot be predicted.
func (f *forecast) done(c *delivery.Campaign, jobs, weight float64) (at time.Time, ok bool) {
	p := &simulation{campaign: c, now: f.now, most: math.Inf(1)}
	var parts []observed
	for _, q := range c.Quotas {
		share, shared := f.shares[q][c]
		if !binds(q) {
			continue
		}
		for w, window := range q.Windows {
			each := 1.0
			if shared {
				each = share.parts[w]
			}
			if state, seen := f.seen[q.ID][w]; !seen || q.Mode == delivery.ModeEventual {
				p.most = min(p.most, each*sustained(q, window))
			} else if each*float64(state.Remaining) < jobs*weight || q.Spend == delivery.SpendEven {
				parts = append(parts, observed{q, state, each})
			}
		}
	}
	if at, ok = c.Finish(f.now, jobs*weight, delivery.Sustained{PerSecond: p.most}); !ok || len(parts) == 0 {
		return at, ok
	}
	p.count(jobs, weight, parts)
	in, ok := p.finish(max(minBends, min(maxBends, forecastBends/max(1, len(f.rates)))))
	if last := f.now.Add(seconds(in)); last.After(at) {
		at = last
	}
	return at, ok
}

// held reports whether a quota of the campaign keeps it from sending at its rate in the next second, or may do so
// because its windows have not been observed.
func (f *forecast) waits(c *delivery.Campaign) bool {
	for _, q := range c.Quotas {
		if !binds(q) {
			continue
		}
		for w := range q.Windows {
			if s, seen := f.seen[q.ID][w]; !seen || float64(s.Remaining) < f.rates[c] {
				return true
			}
		}
	}
	return false
}
