package demo

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

// demand is the part of a campaign's situation that determines how much it could have sent.
type demand struct {
	Rates  []count.RateChange
	Quotas []string // ids
	// Busy are the intervals with jobs. In Paused, and while its gate was Closed, it could not send.
	Busy, Paused, Closed []count.Interval
}

// allowed is what a campaign could have sent.
type allowed struct {
	Units float64       // the integral of min(send_rate, what its quotas allow)
	Time  time.Duration // over this much time
}

// allowances integrates, for every campaign, the smaller of its send_rate and what its quotas allow, over the time in
// which it had jobs, was not paused and its gate was open. A quota allows limit/span of its tightest window on
// average; its campaigns, which have one weight, share that, and what one cannot use goes to the others.
func allowances(demands map[string]demand, quotas map[string]*delivery.Quota) map[string]allowed {
	result := make(map[string]allowed, len(demands))
	instants := breakpoints(demands)
	for i := 0; i+1 < len(instants); i++ {
		from, to := instants[i], instants[i+1]
		for id, rate := range ratesIn(demands, quotas, from) {
			a := result[id]
			a.Units += rate * (to - from).Seconds()
			a.Time += to - from
			result[id] = a
		}
	}
	return result
}

// breakpoints returns the instants of all changes, ascending.
func breakpoints(demands map[string]demand) []time.Duration {
	var instants []time.Duration
	for _, d := range demands {
		for _, c := range d.Rates {
			instants = append(instants, c.At)
		}
		for _, intervals := range [][]count.Interval{d.Busy, d.Paused, d.Closed} {
			for _, in := range intervals {
				instants = append(instants, in.From, in.To)
			}
		}
	}
	slices.Sort(instants)
	return slices.Compact(instants)
}

// ratesIn returns the possible rate of each campaign that can send at an instant, in units per second.
func ratesIn(demands map[string]demand, quotas map[string]*delivery.Quota, at time.Duration) map[string]float64 {
	rates := make(map[string]float64)
	for id, d := range demands {
		if within(d.Busy, at) && !within(d.Paused, at) && !within(d.Closed, at) {
			rates[id] = count.NewTimeline(d.Rates, 0).Rate(at)
		}
	}
	limited := make(map[string]float64, len(rates))
	for id, rate := range rates {
		limited[id] = rate
		for _, quotaID := range demands[id].Quotas {
			limited[id] = min(limited[id], shareOf(id, quotas[quotaID], demands, rates))
		}
	}
	return limited
}

// shareOf returns what a quota allows a campaign while the campaigns in rates can send: equal shares, filled up from the
// campaign that needs the least.
func shareOf(campaign string, q *delivery.Quota, demands map[string]demand, rates map[string]float64) float64 {
	if q == nil || len(q.Windows) == 0 {
		return rates[campaign]
	}
	var members []string
	for id := range rates {
		if slices.Contains(demands[id].Quotas, q.ID) {
			members = append(members, id)
		}
	}
	slices.SortFunc(members, func(a, b string) int { return cmp.Compare(rates[a], rates[b]) })
	left := average(q)
	for i, id := range members {
		share := min(rates[id], left/float64(len(members)-i))
		if id == campaign {
			return share
		}
		left -= share
	}
	return 0
}

// average returns what a quota allows in the long run, in units per second.
func average(q *delivery.Quota) float64 {
	tightest := math.Inf(1)
	for _, w := range q.Windows {
		tightest = min(tightest, float64(w.Limit)/w.Span.Seconds())
	}
	return tightest
}

func within(intervals []count.Interval, at time.Duration) bool {
	return slices.ContainsFunc(intervals, func(in count.Interval) bool { return in.Holds(at) })
}
