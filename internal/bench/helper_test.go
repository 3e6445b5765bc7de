package bench

import (
	"time"

	"github.com/pacer/pacer/internal/measure"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// even is n arrivals, one every spacing from start on.
func even(start, spacing time.Duration, n int) []time.Duration {
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = start + time.Duration(i)*spacing
	}
	return times
}

// events makes events of one campaign, numbered in their order.
func events(times []time.Duration) []measure.Event {
	list := make([]measure.Event, len(times))
	for i, at := range times {
		list[i] = measure.Event{At: at, Job: int32(i)}
	}
	return list
}
