package delivery

import (
	"testing"
	"time"
)

func TestStripes(t *testing.T) {
	for _, c := range []struct {
		name     string
		rate     Rate
		latency  time.Duration
		inFlight int
		lanes    int
		want     int
	}{
		{"no rate", Rate{}, 0, 0, 256, 1},
		{"a slow one", PerSecond(5), 100 * time.Millisecond, 256, 256, 1},
		{"one a day", Rate{N: 1, Per: 86_400_000_000}, time.Hour, 1, 256, 1},
		{"just one", PerSecond(500), 0, 0, 256, 1},
		{"just two", PerSecond(501), 0, 0, 256, 2},
		{"a fast one", PerSecond(6000), 100 * time.Millisecond, 256, 256, 12},
		{"a slow destination", PerSecond(100), 4 * time.Second, 64, 256, 13},
		{"a slow destination, many calls", PerSecond(100), 4 * time.Second, 1000, 256, 1},
		{"at most an eighth of the lanes", PerSecond(500), 4 * time.Second, 64, 256, 32},
		{"as fast as can be", PerSecond(1_000_000), time.Minute, 1, 10_000, 1250},
		{"few lanes", PerSecond(6000), 0, 0, 8, 1},
		{"one lane", PerSecond(6000), 0, 0, 1, 1},
	} {
		if got := Stripes(c.rate, c.latency, c.inFlight, c.lanes); got != c.want {
			t.Errorf("%s: %d lanes, want %d", c.name, got, c.want)
		}
	}
}
