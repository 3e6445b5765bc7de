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

// TestGatesOfDestinationsAreShared: what one daemon closes or opens, every other one reads once, on every kind of store.
func TestGatesOfDestinationsAreShared(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		l, ok := s.(*lua)
		if !ok {
			return // the model has no gates of destinations
		}
		ctx := context.Background()
		l.now = epoch
		gate := func(name string, cause delivery.GateCause, d time.Duration) delivery.Gate {
			g := delivery.Gate{Sink: "s", Cause: cause, Destination: name}
			if d > 0 {
				g.Until = time.Now().Add(d)
			}
			return g
		}
		move := func(gates ...delivery.Gate) {
			t.Helper()
			must(t, l.engine("a").MoveDestinations(ctx, gates))
		}
		after := int64(0)
		read := func(want ...string) {
			t.Helper()
			gates, next, more, err := l.engine("b").DestinationsSince(ctx, after)
			must(t, err)
			var got []string
			for _, g := range gates {
				until := "open"
				if !g.Until.IsZero() {
					until = fmt.Sprint(g.Cause, " ", time.Until(g.Until).Round(time.Minute), " since ", time.Since(g.Since).Round(time.Second))
				}
				got = append(got, fmt.Sprint(g.Sink, "/", g.Destination, " ", until))
			}
			if after = next; more || !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		read()
		move(gate("https://a:443", delivery.GateThrottled, 5*time.Minute), gate("b", delivery.GateFailing, time.Minute))
		move(gate("c", delivery.GateRefused, time.Minute))
		read("s/https://a:443 throttled 5m0s since 0s", "s/b failing 1m0s since 0s", "s/c refused 1m0s since 0s")
		read()
		l.now += 10 * second
		move(gate("nobody", 0, 0))
		move(gate("https://a:443", delivery.GateFailing, time.Minute)) // a failure does not shorten a wait
		read()
		move(gate("b", delivery.GateFailing, 2*time.Minute), gate("c", 0, 0))
		read("s/b failing 2m0s since 10s", "s/c open")
		must(t, l.engine("a").ClearDestination(ctx, "s", "https://a:443"))
		read("s/https://a:443 open")
		l.now -= 3600 * second // other data, with another clock
		gates, next, more, err := l.engine("b").DestinationsSince(ctx, after+7200*second)
		if err != nil || len(gates) != 0 || next != 0 || !more {
			t.Errorf("of a clock that is behind: %v from %d, %t, %v", gates, next, more, err)
		}
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
	must(t, e.MoveDestinations(ctx, gates))
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
	must(t, e.MoveDestinations(ctx, gates[:1]))
	if n := c.ZCard(ctx, s.keys.shutChanges()).Val(); n != maxShut {
		t.Errorf("%d are remembered", n)
	}
	again, _, _, err := e.DestinationsSince(ctx, next)
	if err != nil || len(again) != 1 {
		t.Errorf("%d gates, %v", len(again), err)
	}
}
