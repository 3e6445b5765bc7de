package demo

import (
	"sort"
	"time"

	"github.com/pacer/pacer/internal/measure"
)

// stallReach is how far from a stall its effects are found. The goroutines that detect it wake at other instants than the late ones, on
// other processors.
const stallReach = 100 * time.Millisecond

// handovers is how often a job waits for a processor between the last check of its slot and the network: the scheduler
// wakes a sender, the sender a connection's writer, the writer the network.
const handovers = 3

// busyness is what the process' stalls explain.
type busyness struct {
	blur func(at time.Duration) time.Duration // how much later than due an event at an instant may have happened
	lost float64                              // part of the slots that may have passed unused
}

// lostTo returns the part of a span that its stalls may have cost: a slot is forfeited if the sum of the waits at its
// handovers is longer than the tolerance.
func lostTo(stalls []measure.Interval, span measure.Interval) float64 {
	sum, end := time.Duration(0), span.From
	for _, s := range stalls {
		if handovers*s.Length() >= notableStall {
			sum += handovers * max(s.To-max(s.From, end), 0)
			end = max(end, s.To) // they may overlap
		}
	}
	return min(float64(sum)/float64(max(span.Length(), 1)), 1)
}

// blurOf returns how late an event at an instant may be because of the machine. Each handover may add the longest stall of the process
// nearby. The stalls are in order of their beginning.
func blurOf(stalls []measure.Interval) func(at time.Duration) time.Duration {
	reach := longest(stalls) + stallReach
	return func(at time.Duration) time.Duration {
		first := sort.Search(len(stalls), func(i int) bool { return stalls[i].From >= at-reach })
		near := measure.Interval{From: at - stallReach, To: at + stallReach}
		most := time.Duration(0)
		for _, s := range stalls[first:] {
			if s.From > near.To {
				break
			}
			if s.To >= near.From {
				most = max(most, s.Length())
			}
		}
		if most == 0 {
			return 0
		}
		return handovers*most + measure.MinStall
	}
}

// longest returns the length of the longest interval; 0 if there is none.
func longest(intervals []measure.Interval) (most time.Duration) {
	for _, in := range intervals {
		most = max(most, in.Length())
	}
	return most
}
