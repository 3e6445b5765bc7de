package requeue

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// fakePins answers with lane and those after it, or fails.
type fakePins struct {
	lane  int
	err   error
	calls int
	asked int // campaigns
}

func (p *fakePins) Pin(_ context.Context, wanted map[string]int, _ int, _ []int) (map[string][]int, error) {
	p.calls++
	p.asked += len(wanted)
	if p.err != nil {
		return nil, p.err
	}
	pins := make(map[string][]int)
	for id, n := range wanted {
		for k := range n {
			pins[id] = append(pins[id], p.lane+k)
		}
	}
	return pins, nil
}

func cacheOf(pins Pins, log *slog.Logger) *pinCache {
	return newPinCache(&Options{Pins: pins, Topics: TopicSpec{Lanes: 8}, Logger: log}, prometheus.NewCounter(prometheus.CounterOpts{}))
}

func TestPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pins, log := &fakePins{lane: 5}, &kafkatest.LogBook{}
		c := cacheOf(pins, log.Logger())
		lane := func(campaign string) int {
			lanes := c.find(t.Context(), []string{campaign}, nil)[campaign]
			if len(lanes) != 1 {
				t.Errorf("lanes %v of %s, want one", lanes, campaign)
			}
			return lanes[0]
		}

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
		if got, want := lane("b"), broker.HashPartition("b", 8); got != want {
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
		if w, i := log.Count("WARN"), log.Count("INFO"); w != 1 || i != 0 {
			t.Errorf("%d warnings and %d infos in one outage", w, i)
		}
		pins.err = nil
		time.Sleep(pinTTL)
		if lane("b") != 6 || log.Count("INFO") != 1 {
			t.Errorf("no recovery: %q", log.Lines(""))
		}
	})
}

// TestKnownPinsAreNotLookedUp: campaigns whose pins every daemon sees need no query, and the others of a batch one.
func TestKnownPinsAreNotLookedUp(t *testing.T) {
	pins := &fakePins{lane: 5}
	c := cacheOf(pins, slog.New(slog.DiscardHandler))
	c.current = func(campaign string) []int {
		if campaign < "c" {
			return []int{2}
		}
		return nil
	}
	want := map[string][]int{"a": {2}, "b": {2}, "c": {5}, "d": {5}}
	for range 3 {
		if got := c.find(t.Context(), []string{"a", "b", "c", "d"}, nil); !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("lanes %v, want %v", got, want)
		}
	}
	if pins.calls != 1 || pins.asked != 2 {
		t.Errorf("%d lookups of %d campaigns, want one of two", pins.calls, pins.asked)
	}
	// A lane that is to be avoided is looked up once; then the new one is known, though not everywhere yet.
	for range 3 {
		if got := c.find(t.Context(), []string{"a"}, []int{2}); !slices.Equal(got["a"], []int{5}) {
			t.Errorf("lanes %v", got)
		}
	}
	if pins.calls != 2 {
		t.Errorf("%d lookups", pins.calls)
	}
	c.pins = nil
	if got := c.find(t.Context(), []string{"e"}, []int{0, 1, 2, 3, 4, 5, 7})["e"]; !slices.Equal(got, []int{6}) {
		t.Errorf("lanes %v by hash, and only 6 is left", got)
	}
}

func TestPinOutOfRange(t *testing.T) {
	c := cacheOf(&fakePins{lane: -3}, slog.New(slog.DiscardHandler))
	if got := c.find(t.Context(), []string{"a"}, nil)["a"]; !slices.Equal(got, []int{5}) {
		t.Errorf("lanes %v", got)
	}
}

func TestHashPartition(t *testing.T) {
	// FNV-1a, 64 bits: the same on every daemon and in every version. Its published value for "a" ends in 8c.
	if got := broker.HashPartition("a", 256); got != 0x8c {
		t.Errorf("hash %#x", got)
	}
	seen := make(map[int]bool)
	for _, c := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		p := broker.HashPartition(c, 4)
		if p < 0 || p > 3 {
			t.Fatalf("partition %d", p)
		}
		seen[p] = true
	}
	if len(seen) < 2 {
		t.Error("everything in one partition")
	}
}
