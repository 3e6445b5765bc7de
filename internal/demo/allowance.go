package demo

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

// demand is the part of a campaign's situation that determines how much it could have sent. It has jobs at all times.
type demand struct {
	Rates  []count.RateChange
	Quotas []string // ids
	// In Paused, and while its gate was Closed, it could not send.
	Paused, Closed []count.Interval
}

// canSend reports whether the campaign could send at an instant.
func (d *demand) canSend(at time.Duration) bool {
	return !slices.ContainsFunc(slices.Concat(d.Paused, d.Closed), func(in count.Interval) bool { return in.Holds(at) })
}

// allowed is what a campaign could have sent.
type allowed struct {
	Units float64       // the integral of min(send_rate, what its quotas allow)
	Time  time.Duration // over this much time
}

// allowances integrates, for every campaign, the smaller of its send_rate and what its quotas allow, over the part of the span in which it
// could send. A quota allows limit/span of its tightest window on average. The campaigns that can send share that evenly.
func allowances(demands map[string]demand, quotas map[string]*delivery.Quota, span count.Interval) map[string]allowed {
	result := make(map[string]allowed, len(demands))
	instants := breakpoints(demands, span)
	for i := range len(instants) - 1 {
		at, length := instants[i], instants[i+1]-instants[i]
		sharing := map[string]int{}
		for _, d := range demands {
			for _, quota := range d.Quotas {
				if d.canSend(at) {
					sharing[quota]++
				}
			}
		}
		for id, d := range demands {
			if !d.canSend(at) {
				continue
			}
			rate := count.NewTimeline(d.Rates, 0).Rate(at)
			for _, quota := range d.Quotas {
				rate = min(rate, average(quotas[quota])/float64(sharing[quota]))
			}
			a := result[id]
			result[id] = allowed{a.Units + rate*length.Seconds(), a.Time + length}
		}
	}
	return result
}

// breakpoints returns the instants of all changes within the span, and its ends, ascending.
func breakpoints(demands map[string]demand, span count.Interval) []time.Duration {
	instants := []time.Duration{span.From, span.To}
	for _, d := range demands {
		for _, c := range d.Rates {
			instants = append(instants, c.At)
		}
		for _, in := range slices.Concat(d.Paused, d.Closed) {
			instants = append(instants, in.From, in.To)
		}
	}
	slices.Sort(instants)
	return slices.DeleteFunc(slices.Compact(instants), func(at time.Duration) bool { return at < span.From || at > span.To })
}

// average returns what a quota allows in the long run, in units per second.
func average(q *delivery.Quota) float64 {
	tightest := math.Inf(1)
	for _, w := range q.Windows {
		tightest = min(tightest, float64(w.Limit)/w.Span.Seconds())
	}
	return tightest
}
