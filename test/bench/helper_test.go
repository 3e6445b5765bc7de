package main

import (
	"testing"
	"time"
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
func events(times []time.Duration) []Event {
	list := make([]Event, len(times))
	for i, at := range times {
		list[i] = Event{At: at, Job: int32(i)}
	}
	return list
}

// noError ends the test with an error.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
