package main

import (
	"math"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

func TestRollingExcess(t *testing.T) {
	at := func(at time.Duration, rate int64) count.RateChange {
		return count.RateChange{At: at, Rate: delivery.PerSecond(rate)}
	}
	lowered := []count.RateChange{at(0, 200), at(time.Second, 100)}
	for _, c := range []struct {
		name    string
		times   []time.Duration
		changes []count.RateChange
		ok      bool
	}{
		{"even", even(0, 10*ms, 300), []count.RateChange{at(0, 100)}, true},
		{"a stall's worth more", append(even(0, 10*ms, 100), 990*ms, 990*ms), []count.RateChange{at(0, 100)}, true},
		{"more than that", append(even(0, 10*ms, 100), 990*ms, 990*ms, 990*ms, 990*ms), []count.RateChange{at(0, 100)}, false},
		{"the old rate counts while it is in the second", even(0, 5*ms, 210), lowered, true},
		{"but not for ever", even(0, 5*ms, 500), lowered, false},
		{"raised before its time", even(0, 5*ms, 200), []count.RateChange{at(0, 100), at(3*time.Second, 200)}, false},
	} {
		if got := RollingExcess(c.times, c.changes, time.Second); (got <= 0) != c.ok {
			t.Errorf("%s: excess %g, want within the bound: %v", c.name, got, c.ok)
		}
	}
	if got := RollingExcess(nil, lowered, time.Second); !math.IsInf(got, -1) {
		t.Errorf("of nothing: %g", got)
	}
}
