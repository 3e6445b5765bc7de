// Package limitstest has what tests of package limits and of its subpackages share.
package limitstest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// A time of the store, and what daemons ask with, in microseconds.
const (
	Epoch   = int64(1_790_000_000_000_000)
	Horizon = int64(75_000)
	Quantum = int64(25_000)
	Late    = int64(20_000)
)

// Ask is an ask for some units.
func Ask(c *delivery.Campaign, want int64) delivery.Ask {
	return delivery.Ask{Campaign: c, Want: want, Horizon: Horizon, Quantum: Quantum, LateTolerance: Late}
}

// Campaign is a campaign of some units a second.
func Campaign(rate int64, quotas ...*delivery.Quota) *delivery.Campaign {
	return &delivery.Campaign{ID: "c", Revision: 1, Rate: delivery.PerSecond(rate), Quotas: quotas, PriorityWeight: 1}
}

// Windows are sliding ones, by limits and spans in turn.
func Windows(spec ...any) []delivery.Window {
	var out []delivery.Window
	for i := 0; i < len(spec); i += 2 {
		out = append(out, delivery.Window{Limit: int64(spec[i].(int)), Span: spec[i+1].(time.Duration), Algorithm: delivery.AlgorithmSliding})
	}
	return out
}

// Rolling is the largest number of the (ascending) events in any stretch of the given length.
func Rolling(events []int64, length int64) int64 {
	most, from := 0, 0
	for i, e := range events {
		if i > 0 && e < events[i-1] {
			panic(fmt.Sprintf("events out of order at %d", i))
		}
		for events[from] <= e-length {
			from++
		}
		most = max(most, i-from+1)
	}
	return int64(most)
}

// DrawRate draws a rate, 0 among others.
func DrawRate(rt *rapid.T) delivery.Rate {
	r := rapid.SampledFrom([]struct {
		micros int64
		per    time.Duration
	}{
		{0, time.Second}, {1_000_000, time.Hour}, {1_000_000, time.Second}, {2_500_000, time.Second}, {2_310_000, time.Second},
		{10_000_000, time.Second}, {40_000_000, time.Second}, {150_000_000, time.Minute}, {150_000_000, time.Second},
		{1_000_000_000, time.Second}, {33_333_333_333, time.Second}, {250_000_000_000, time.Second}, {1_000_000, 24 * 366 * time.Hour},
	}).Draw(rt, "rate")
	rate, err := delivery.NewRate(r.micros, r.per)
	if err != nil {
		rt.Fatal(err)
	}
	return rate
}
