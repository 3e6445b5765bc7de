package app

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/embedded"
)

// demand is what bears on how much one campaign could have sent.
type demand struct {
	Rates  []bench.RateChange
	Weight int64    // of its share in a contended quota
	Quotas []string // ids
	// Busy are the stretches in which it had jobs; Paused and Closed (its gate) those in which it could not send.
	Busy, Paused, Closed []embedded.Interval
}

// allowed is what a campaign could have sent.
type allowed struct {
	Units float64       // the integral of min(send_rate, what its quotas allow)
	Time  time.Duration // over this much time
}

// allowances integrates, for every campaign, the smaller of its send_rate and what its quotas allow, over the time in
// which it had jobs, was not paused and its gate was open. A quota allows limit/span of its tightest window on
// average; its campaigns share that in proportion to their weights, and what one cannot use, the others do.
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

// breakpoints are all instants at which something changes, ascending; between two of them everything is constant.
func breakpoints(demands map[string]demand) []time.Duration {
	var instants []time.Duration
	for _, d := range demands {
		for _, c := range d.Rates {
			instants = append(instants, c.At)
		}
		for _, intervals := range [][]embedded.Interval{d.Busy, d.Paused, d.Closed} {
			for _, in := range intervals {
				instants = append(instants, in.From, in.To)
			}
		}
	}
	slices.Sort(instants)
	return slices.Compact(instants)
}

// ratesIn is how fast each campaign that can send at an instant may do so.
func ratesIn(demands map[string]demand, quotas map[string]*delivery.Quota, at time.Duration) map[string]float64 {
	rates := make(map[string]float64)
	for id, d := range demands {
		if within(d.Busy, at) && !within(d.Paused, at) && !within(d.Closed, at) {
			rates[id] = bench.NewTimeline(d.Rates, 0).Rate(at)
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

// shareOf is what a quota allows a campaign while the campaigns in rates can send: weighted shares, filled up
// from the campaign that needs the least for its weight.
func shareOf(campaign string, q *delivery.Quota, demands map[string]demand, rates map[string]float64) float64 {
	if q == nil || len(q.Windows) == 0 {
		return rates[campaign]
	}
	left, weights := average(q), 0.0
	var members []string
	for id := range rates {
		if slices.Contains(demands[id].Quotas, q.ID) {
			members = append(members, id)
			weights += weightOf(demands[id])
		}
	}
	slices.SortFunc(members, func(a, b string) int {
		if rates[a]/weightOf(demands[a]) < rates[b]/weightOf(demands[b]) {
			return -1
		}
		return 1
	})
	for _, id := range members {
		share := min(rates[id], left*weightOf(demands[id])/weights)
		if id == campaign {
			return share
		}
		left -= share
		weights -= weightOf(demands[id])
	}
	return 0
}

func weightOf(d demand) float64 { return float64(max(d.Weight, 1)) }

// average is what a quota allows per second in the long run.
func average(q *delivery.Quota) float64 {
	tightest := -1.0
	for _, w := range q.Windows {
		if rate := float64(w.Limit) / w.Span.Seconds(); tightest < 0 || rate < tightest {
			tightest = rate
		}
	}
	return tightest
}

func within(intervals []embedded.Interval, at time.Duration) bool {
	return slices.ContainsFunc(intervals, func(in embedded.Interval) bool { return in.From <= at && at < in.To })
}
