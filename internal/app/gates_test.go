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
		var opened []delivery.Opening
		var failed error
		var said strings.Builder
		seen := -1
		g := &gates{
			read:  func(context.Context) ([]delivery.Gate, []delivery.Opening, error) { return state, opened, failed },
			sinks: []string{"a", "b"}, see: func(closed []delivery.Gate) { seen = len(closed) },
			until: newGateGauge(registry), log: slog.New(slog.NewTextHandler(&said, nil)), logged: map[string]time.Time{},
		}
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
		opened = []delivery.Opening{{Sink: "a", By: "alice@desk", At: time.Now()}}
		for range 3 {
			g.update(t.Context())
			time.Sleep(time.Second)
			opened[0].At = opened[0].At.Add(time.Millisecond)
		}
		if log := said.String(); strings.Count(log, "a gate was opened by hand") != 1 || !strings.Contains(log, "sink=a by=alice@desk") {
			t.Errorf("the log says %q", log)
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(""), "none"); err != nil || value("a", delivery.GateThrottled) != 0 {
			t.Errorf("a gate that was opened is shown: %v", err)
		}
	})
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
	g := &gates{log: slog.New(slog.DiscardHandler), seeDestinations: func(gates []delivery.DestinationGate) {
		for _, g := range gates {
			seen = append(seen, g.Destination)
		}
	}, readDestinations: func(_ context.Context, after int64) (gates []delivery.DestinationGate, next int64, more bool, err error) {
		page := pages[len(asked)]
		asked = append(asked, after)
		for _, name := range page.names {
			gates = append(gates, delivery.DestinationGate{Destination: name})
		}
		return gates, page.next, page.more, page.err
	}}
	for range 3 {
		g.updateDestinations(t.Context())
	}
	if !slices.Equal(seen, []string{"a", "b", "c", "d"}) || !slices.Equal(asked, []int64{0, 7, 9, 9}) {
		t.Errorf("%q, from %d", seen, asked)
	}
}
