package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// Every sink has a series of each cause from the start, and one that is probed never looks open.
func TestGatesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		var state []delivery.Gate
		var failed error
		seen := -1
		f := &fakeGates{
			sinks:     func() ([]delivery.Gate, error) { return state, failed },
			seeSinks:  func(closed []delivery.Gate) { seen = len(closed) },
			endpoints: func(int64) ([]delivery.Gate, int64, bool, error) { return nil, 0, false, nil },
		}
		g := &gates{store: f, pacer: f, sinks: []string{"a", "b"}, until: newGateGauge(registry), log: slog.New(slog.DiscardHandler)}
		const name = "pacer_gate_closed_until_timestamp_seconds"
		value := func(sink string, cause delivery.GateCause) float64 {
			return testutil.ToFloat64(g.until.WithLabelValues(sink, cause.String()))
		}
		g.update(t.Context())
		if n, _ := testutil.GatherAndCount(registry, name); n != 6 || seen != 0 {
			t.Errorf("%d series, %d gates passed on", n, seen)
		}
		now := time.Now()
		state = []delivery.Gate{
			{Sink: "a", Cause: delivery.GateThrottled, Until: now.Add(time.Minute)},
			{Sink: "b", Cause: delivery.GateMisconfigured, Until: now.Add(-time.Hour)},
		}
		g.update(t.Context())
		if a, b := value("a", delivery.GateThrottled), value("b", delivery.GateMisconfigured); a != float64(now.Unix()+60) || b != float64(now.Unix()+1) {
			t.Errorf("a until %f, b until %f, now %d", a, b, now.Unix())
		}
		failed = errors.New("no answer")
		time.Sleep(gatesShown)
		g.update(t.Context())
		if a := value("a", delivery.GateThrottled); a == 0 {
			t.Error("the last state is not kept for a while")
		}
		time.Sleep(time.Second)
		g.update(t.Context())
		if n, _ := testutil.GatherAndCount(registry, name); n != 0 {
			t.Errorf("%d series of a state that is not known", n)
		}
		state, failed = nil, nil
		g.update(t.Context())
		if err := testutil.GatherAndCompare(registry, strings.NewReader(""), "none"); err != nil || value("a", delivery.GateThrottled) != 0 {
			t.Errorf("a gate that was opened is shown: %v", err)
		}
	})
}

// fakeGates are the store's gates, and what is told of them.
type fakeGates struct {
	sinks        func() ([]delivery.Gate, error)
	seeSinks     func([]delivery.Gate)
	endpoints    func(after int64) ([]delivery.Gate, int64, bool, error)
	seeEndpoints func([]delivery.Gate)
}

func (f *fakeGates) Gates(context.Context, []string) ([]delivery.Gate, error) { return f.sinks() }

func (f *fakeGates) DestinationsSince(_ context.Context, after int64) (gates []delivery.Gate, next int64, more bool, err error) {
	return f.endpoints(after)
}

func (f *fakeGates) SeeGates(closed []delivery.Gate) { f.seeSinks(closed) }

func (f *fakeGates) SeeDestinations(list []delivery.Gate) {
	if f.seeEndpoints != nil {
		f.seeEndpoints(list)
	}
}

// TestGatesOfDestinationsAreReadOn: each change is passed on once, page by page, and from where a read failed.
func TestGatesOfDestinationsAreReadOn(t *testing.T) {
	var seen []string
	var asked []int64
	pages := []struct {
		names []string
		next  int64
		more  bool
		err   error
	}{{[]string{"a", "b"}, 7, true, nil}, {[]string{"c"}, 9, false, nil}, {nil, 0, false, errors.New("down")}, {[]string{"d"}, 12, false, nil}}
	f := &fakeGates{seeEndpoints: func(gates []delivery.Gate) {
		for _, g := range gates {
			seen = append(seen, g.Destination)
		}
	}, endpoints: func(after int64) (gates []delivery.Gate, next int64, more bool, err error) {
		page := pages[len(asked)]
		asked = append(asked, after)
		for _, name := range page.names {
			gates = append(gates, delivery.Gate{Destination: name})
		}
		return gates, page.next, page.more, page.err
	}}
	g := &gates{store: f, pacer: f, log: slog.New(slog.DiscardHandler)}
	for range 3 {
		_ = g.readDestinations(t.Context()) // one of them fails
	}
	if !slices.Equal(seen, []string{"a", "b", "c", "d"}) || !slices.Equal(asked, []int64{0, 7, 9, 9}) {
		t.Errorf("%q, from %d", seen, asked)
	}
}
