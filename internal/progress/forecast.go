package progress

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// forecast foresees campaigns with a backlog under the quotas they share. One is made for each moment.
type forecast struct {
	now    time.Time
	rates  map[*delivery.Campaign]float64     // of those that send now, units per second
	shares map[*delivery.Quota][]share        // of the quotas that bind one of them
	left   map[string]map[int]int64           // units that could be granted now, by quota and window
	bounds map[*delivery.Quota]map[string]int // index into shares by campaign
}

// share is a campaign's part of a quota, between 0 and 1 for each window.
type share struct {
	campaign *delivery.Campaign
	parts    []float64
}

// newForecast takes the campaigns that wait for something, and the windows as they were seen last.
func newForecast(now time.Time, waiting []*delivery.Campaign, windows []delivery.WindowState) *forecast {
	f := &forecast{
		now: now, rates: map[*delivery.Campaign]float64{}, shares: map[*delivery.Quota][]share{},
		left: map[string]map[int]int64{}, bounds: map[*delivery.Quota]map[string]int{},
	}
	for _, w := range windows {
		if f.left[w.Quota] == nil {
			f.left[w.Quota] = map[int]int64{}
		}
		f.left[w.Quota][w.Window] = w.Remaining
	}
	for _, c := range waiting {
		rate := rateNow(c, now)
		if rate == 0 {
			continue
		}
		f.rates[c] = rate
		for _, q := range c.Quotas {
			if binds(q) {
				f.shares[q] = append(f.shares[q], share{campaign: c})
			}
		}
	}
	for q, shares := range f.shares {
		f.bounds[q] = map[string]int{}
		for i := range shares {
			f.bounds[q][shares[i].campaign.ID] = i
		}
		for _, w := range q.Windows {
			f.divide(shares, sustained(q, w))
		}
	}
	return f
}

// rateNow is what a campaign may send now by its schedule and its status, units per second.
func rateNow(c *delivery.Campaign, now time.Time) float64 {
	if c.Status != delivery.StatusActive || c.Invalid != "" || !c.Active(now) || c.Ended(now) {
		return 0
	}
	rate, _, _ := c.RateAt(now)
	return rate.PerSecond()
}

// binds tells whether the quota limits units. What a quota of bytes lets through is not known before the jobs are read.
func binds(q *delivery.Quota) bool {
	return q.Mode != delivery.ModeShadow && q.Unit != delivery.UnitBytes && q.Exempt < 100
}

// sustained is what the window lets through in the long run, units per second.
func sustained(q *delivery.Quota, w delivery.Window) float64 {
	return float64(w.Limit) / w.Span.Seconds() * 100 / float64(100-q.Exempt)
}

// divide gives each campaign its part of what a window lets through: by weight, and what one cannot use goes to the
// others, as the quota engine does it in the long run.
func (f *forecast) divide(shares []share, all float64) {
	order := make([]int, len(shares))
	weights := 0.0
	for i := range shares {
		order[i] = i
		weights += float64(max(1, shares[i].campaign.PriorityWeight))
	}
	wish := func(i int) float64 {
		c := shares[i].campaign
		return f.rates[c] / float64(max(1, c.PriorityWeight))
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case wish(a) < wish(b):
			return -1
		case wish(a) > wish(b):
			return 1
		}
		return 0
	})
	left := all
	for _, i := range order { // the smallest wish first: what it leaves is there for the greater ones
		c := shares[i].campaign
		weight := float64(max(1, c.PriorityWeight))
		got := min(f.rates[c], left*weight/weights)
		left, weights = left-got, weights-weight
		part := 0.0
		if all > 0 {
			part = got / all
		}
		shares[i].parts = append(shares[i].parts, part)
	}
}

// done is when so many units of the campaign will have been sent; false when that cannot be foreseen.
func (f *forecast) done(c *delivery.Campaign, units float64) (at time.Time, ok bool) {
	at, ok = c.Finish(f.now, units, delivery.Unbounded)
	for _, q := range c.Quotas {
		i, shared := f.bounds[q][c.ID]
		if !binds(q) {
			continue
		}
		for w, window := range q.Windows {
			part := 1.0
			if shared {
				part = f.shares[q][i].parts[w]
			}
			all := sustained(q, window)
			if part*all >= f.rates[c] && shared {
				continue // it has all that it can use
			}
			bound := delivery.Sustained{PerSecond: part * all}
			if q.Spend != delivery.SpendEven {
				bound.Credit = part * float64(f.left[q.ID][w])
			}
			later, can := c.Finish(f.now, units, bound)
			if !can {
				return time.Time{}, false
			}
			if later.After(at) {
				at = later
			}
		}
	}
	return at, ok
}

// held tells whether a quota of the campaign keeps it from sending at its rate in the next second, or may: its windows
// have not been seen.
func (f *forecast) held(c *delivery.Campaign) bool {
	for _, q := range c.Quotas {
		if !binds(q) {
			continue
		}
		for w := range q.Windows {
			if left, seen := f.left[q.ID][w]; !seen || float64(left) < f.rates[c] {
				return true
			}
		}
	}
	return false
}
