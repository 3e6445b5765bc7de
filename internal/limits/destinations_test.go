package limits

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
)

// onScripts runs a test on the scripts of every kind of store: the model has no gates of destinations.
func onScripts(t *testing.T, test func(t *testing.T, l *lua)) {
	t.Helper()
	eachStore(t, func(t *testing.T, s store) {
		if l, ok := s.(*lua); ok {
			l.now = epoch
			test(t, l)
		}
	})
}

// gateOf is a gate of a sink or, with a name, of a destination, which is closed for a while or, without one, open.
func gateOf(sink, destination string, cause delivery.GateCause, d time.Duration) delivery.Gate {
	g := delivery.Gate{Sink: sink, Cause: cause, Destination: destination}
	if d > 0 {
		g.Until = time.Now().Add(d)
	}
	return g
}

// stateOf shows a gate.
func stateOf(g delivery.Gate) string {
	if g.Until.IsZero() {
		return fmt.Sprint(g.Sink, "/", g.Destination, " open")
	}
	until, since := time.Until(g.Until).Round(time.Minute), time.Since(g.Since).Round(time.Second)
	return fmt.Sprint(g.Sink, "/", g.Destination, " ", g.Cause, " ", until, " since ", since)
}

// destinations reads what has become of gates of destinations since it was called last.
type destinations struct {
	*lua
	after int64
}

func (d *destinations) want(t *testing.T, want ...string) {
	t.Helper()
	gates, next, more, err := d.engine("b").DestinationsSince(t.Context(), d.after)
	must(t, err)
	var got []string
	for _, g := range gates {
		got = append(got, stateOf(g))
	}
	if d.after = next; more || !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestGatesOfDestinationsAreShared: what one daemon closes or opens, every other one reads once, on every kind of store.
func TestGatesOfDestinationsAreShared(t *testing.T) {
	onScripts(t, func(t *testing.T, l *lua) {
		read := destinations{lua: l}
		move := func(gates ...delivery.Gate) {
			t.Helper()
			_, err := l.engine("a").MoveGates(t.Context(), gates)
			must(t, err)
		}
		read.want(t)
		move(gateOf("s", "https://a:443", delivery.GateThrottled, 5*time.Minute), gateOf("s", "b", delivery.GateFailing, time.Minute))
		move(gateOf("s", "c", delivery.GateRefused, time.Minute))
		read.want(t, "s/https://a:443 throttled 5m0s since 0s", "s/b failing 1m0s since 0s", "s/c refused 1m0s since 0s")
		read.want(t)
		l.now += 10 * second
		move(gateOf("s", "nobody", 0, 0))
		move(gateOf("s", "https://a:443", delivery.GateFailing, time.Minute)) // a failure does not shorten a wait
		read.want(t)
		move(gateOf("s", "b", delivery.GateFailing, 2*time.Minute), gateOf("s", "c", 0, 0))
		read.want(t, "s/b failing 2m0s since 10s", "s/c open")
		move(gateOf("s", "https://a:443", 0, 0))
		read.want(t, "s/https://a:443 open")
		l.now -= 3600 * second // other data, with another clock
		gates, next, more, err := l.engine("b").DestinationsSince(t.Context(), read.after+7200*second)
		if err != nil || len(gates) != 0 || next != 0 || !more {
			t.Errorf("of a clock that is behind: %v from %d, %t, %v", gates, next, more, err)
		}
	})
}

// TestMoveGates: gates of sinks and of destinations are closed and opened in one call; it tells which sinks were not closed for the cause
// before, and one gate that cannot be moved keeps no other from it.
func TestMoveGates(t *testing.T) {
	onScripts(t, func(t *testing.T, l *lua) {
		read := destinations{lua: l}
		move := func(fails bool, gates []delivery.Gate, first, sinks []string, destinations ...string) {
			t.Helper()
			l.now += second
			closed, err := l.engine("a").MoveGates(t.Context(), gates)
			if (err != nil) != fails || !slices.Equal(closed, first) {
				t.Errorf("closed %q, %v; want %q", closed, err, first)
			}
			var got []string
			list, err := l.engine("b").Gates(t.Context(), []string{"s", "t"})
			must(t, err)
			for _, g := range list {
				got = append(got, stateOf(g))
			}
			if !slices.Equal(got, sinks) {
				t.Errorf("sinks: %q, want %q", got, sinks)
			}
			read.want(t, destinations...)
		}
		const throttled, failing, minute = delivery.GateThrottled, delivery.GateFailing, time.Minute
		move(false, []delivery.Gate{gateOf("s", "", throttled, 5*minute), gateOf("s", "x", throttled, minute), gateOf("t", "", failing, minute)},
			[]string{"s", "t"}, []string{"s/ throttled 5m0s since 0s", "t/ failing 1m0s since 0s"}, "s/x throttled 1m0s since 0s")
		move(false, []delivery.Gate{gateOf("s", "", throttled, 5*minute)},
			nil, []string{"s/ throttled 5m0s since 1s", "t/ failing 1m0s since 1s"})
		for i := range l.shards.Count() {
			must(t, l.shards.Master(i).HSet(t.Context(), newKeys(l.prefix, i).gate("u"), "of", "another program").Err())
		}
		move(true, []delivery.Gate{gateOf("u", "", throttled, minute), gateOf("s", "x", 0, 0), gateOf("t", "", 0, 0)},
			nil, []string{"s/ throttled 5m0s since 2s"}, "s/x open")
	})
}

// TestGatesOfDestinationsAreBounded: those that were changed longest ago are forgotten, and a reply does not tell of all.
func TestGatesOfDestinationsAreBounded(t *testing.T) {
	_, c := miniClient(t)
	l := newLua(t, c)
	l.now = epoch
	e, ctx := l.engine("a"), context.Background()
	var gates []delivery.Gate
	for i := range 1200 {
		gates = append(gates, delivery.Gate{
			Sink: "s", Cause: delivery.GateFailing, Until: time.Now().Add(time.Hour), Destination: fmt.Sprint(i),
		})
	}
	must(t, e.moveDestinations(ctx, gates))
	page, next, more, err := e.DestinationsSince(ctx, 0)
	if err != nil || len(page) != maxShutReply || !more || page[0].Destination != "0" {
		t.Fatalf("%d gates, more: %t, %v", len(page), more, err)
	}
	rest, next, more, err := e.DestinationsSince(ctx, next)
	if err != nil || len(rest) != 200 || more || rest[199].Destination != "1199" {
		t.Fatalf("%d gates, more: %t, %v", len(rest), more, err)
	}
	s := e.shards[0]
	old := make([]redis.Z, maxShut-1000) // as if there had been many before
	for i := range old {
		old[i] = redis.Z{Score: float64(i + 1), Member: fmt.Sprint("s", separator, "old-", i)}
	}
	must(t, c.ZAdd(ctx, s.keys.shutChanges(), old...).Err())
	must(t, e.moveDestinations(ctx, gates[:1]))
	if n := c.ZCard(ctx, s.keys.shutChanges()).Val(); n != maxShut {
		t.Errorf("%d are remembered", n)
	}
	again, _, _, err := e.DestinationsSince(ctx, next)
	if err != nil || len(again) != 1 {
		t.Errorf("%d gates, %v", len(again), err)
	}
}
