package requeue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fakePins answers with lane, or fails.
type fakePins struct {
	lane  int
	err   error
	calls int
}

func (p *fakePins) Pin(context.Context, string, int) (int, error) {
	p.calls++
	return p.lane, p.err
}

func TestPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pins, log := &fakePins{lane: 5}, &logBook{}
		c := newPinCache(pins, 8, log.logger(), prometheus.NewCounter(prometheus.CounterOpts{}))
		lane := func(campaign string) int { return c.lane(t.Context(), campaign) }

		if first, second := lane("a"), lane("a"); first != 5 || second != 5 || pins.calls != 1 {
			t.Fatalf("%d lookups for one campaign", pins.calls)
		}
		pins.lane = 6
		time.Sleep(pinTTL)
		if lane("a") != 6 {
			t.Fatal("an old pin was kept")
		}

		pins.err = errors.New("database is down")
		time.Sleep(pinTTL)
		if got := lane("a"); got != 6 {
			t.Errorf("lane %d in an outage, want the one known before", got)
		}
		if got, want := lane("b"), hashPartition("b", 8); got != want {
			t.Errorf("unknown campaign in lane %d, want its hash %d", got, want)
		}
		calls := pins.calls
		for range 100 {
			lane("c")
		}
		if pins.calls != calls {
			t.Errorf("%d lookups right after a failure", pins.calls-calls)
		}
		for range 3 {
			time.Sleep(pinTTL)
			lane("b")
		}
		if w, i := log.count("WARN"), log.count("INFO"); w != 1 || i != 0 {
			t.Errorf("%d warnings and %d infos in one outage", w, i)
		}
		pins.err = nil
		time.Sleep(pinTTL)
		if lane("b") != 6 || log.count("INFO") != 1 {
			t.Errorf("no recovery: %q", log.lines)
		}
	})
}

func TestPinOutOfRange(t *testing.T) {
	c := newPinCache(&fakePins{lane: -3}, 8, (&logBook{}).logger(), prometheus.NewCounter(prometheus.CounterOpts{}))
	if got := c.lane(t.Context(), "a"); got != 5 {
		t.Errorf("lane %d", got)
	}
}

func TestHashPartition(t *testing.T) {
	// FNV-1a, 64 bits: the same on every daemon and in every version. Its published value for "a" ends in 8c.
	if got := hashPartition("a", 256); got != 0x8c {
		t.Errorf("hash %#x", got)
	}
	seen := make(map[int]bool)
	for _, c := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		p := hashPartition(c, 4)
		if p < 0 || p > 3 {
			t.Fatalf("partition %d", p)
		}
		seen[p] = true
	}
	if len(seen) < 2 {
		t.Error("everything in one partition")
	}
}
