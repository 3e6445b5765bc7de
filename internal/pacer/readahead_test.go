package pacer

import (
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAllCampaignsAreReadAheadForAsLong: as long as the memory allows, but each by two units at least; with memory for all of them,
// by as much as usual.
func TestAllCampaignsAreReadAheadForAsLong(t *testing.T) {
	many := func(n int, r delivery.Rate, more ...delivery.Rate) []delivery.Rate {
		for range n {
			more = append(more, r)
		}
		return more
	}
	for _, tc := range []struct {
		name  string
		rates []delivery.Rate
		bytes int64
		slow  int64 // units of the last one
		first int64 // and of the first
	}{
		{"none", nil, 0, 0, 0},
		{"few", many(100, delivery.PerSecond(1)), 32 << 20, 16, 16},
		{"one fast among many slow", many(10_000, delivery.PerSecond(1), delivery.PerSecond(5000)), 32 << 20, 3, 2048},
		{"as fast as can be", many(1, delivery.PerSecond(1_000_000)), 32 << 20, 0, 0},
		{"many fast", many(1000, delivery.PerSecond(1000)), 80 << 20, 80, 80},
		{"no memory", many(1000, delivery.PerSecond(1), delivery.PerSecond(1000)), 1 << 20, 2, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := ahead{each: 1 << 10}
			for range 3 { // the limit that is found does not move
				a.fit(tc.rates, tc.bytes)
			}
			sum := int64(0)
			for _, r := range tc.rates {
				sum += a.units(r)
			}
			if sum > tc.bytes>>10 && a.limit > leastAhead {
				t.Errorf("%d units, want at most %d", sum, tc.bytes>>10)
			}
			if a.limit > 0 && sum < tc.bytes>>10*2/5 {
				t.Errorf("%d units of %d", sum, tc.bytes>>10)
			}
			if tc.slow > 0 && (a.units(tc.rates[0]) < tc.first*9/10-1 || a.units(tc.rates[0]) > tc.first || a.units(tc.rates[len(tc.rates)-1]) < tc.slow*9/10-1 ||
				a.units(tc.rates[len(tc.rates)-1]) > tc.slow) {
				t.Errorf("%d units of the first and %d of the last, want %d and %d", a.units(tc.rates[0]), a.units(tc.rates[len(tc.rates)-1]),
					tc.first, tc.slow)
			}
			a.fit(nil, tc.bytes)
			exactly(t, a.limit, 0, "the limit when no campaign is left")
		})
	}
}

// TestTheMemoryOfAUnit follows what is read, by weight.
func TestTheMemoryOfAUnit(t *testing.T) {
	var a ahead
	for range 1000 {
		a.saw(&delivery.Job{Weight: 2, Reading: delivery.Reading{Size: 4 << 10}})
	}
	if a.each != 2<<10 {
		t.Errorf("%d bytes, want %d", a.each, 2<<10)
	}
	for range 1000 {
		a.saw(&delivery.Job{Weight: 1, Reading: delivery.Reading{Size: 1 << 10}})
	}
	if a.each > 5<<8 {
		t.Errorf("%d bytes, want about %d", a.each, 1<<10)
	}
}
