package limits

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestMoveGates: gates of sinks and of destinations are closed and opened in one call; it tells which sinks were not closed for the cause
// before, and one gate that cannot be moved keeps no other from it.
func TestMoveGates(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		l, ok := s.(*lua)
		if !ok {
			return // the model has no gates of destinations
		}
		ctx := context.Background()
		l.now = epoch
		gate := func(sink, destination string, cause delivery.GateCause, d time.Duration) delivery.Gate {
			g := delivery.Gate{Sink: sink, Cause: cause, Destination: destination}
			if d > 0 {
				g.Until = time.Now().Add(d)
			}
			return g
		}
		after := int64(0)
		move := func(fails bool, gates []delivery.Gate, first, sinks, destinations []string) {
			t.Helper()
			l.now += second
			closed, err := l.engine("a").MoveGates(ctx, gates)
			if (err != nil) != fails || !slices.Equal(closed, first) {
				t.Errorf("closed %q, %v; want %q", closed, err, first)
			}
			state := func(g delivery.Gate) string {
				if g.Until.IsZero() {
					return "open"
				}
				return fmt.Sprint(g.Cause, " ", time.Until(g.Until).Round(time.Minute))
			}
			var got []string
			list, err := l.engine("b").Gates(ctx, []string{"s", "t"})
			must(t, err)
			for _, g := range list {
				got = append(got, g.Sink+" "+state(g))
			}
			if !slices.Equal(got, sinks) {
				t.Errorf("sinks: %q, want %q", got, sinks)
			}
			var of []string
			moved, next, _, err := l.engine("b").DestinationsSince(ctx, after)
			must(t, err)
			for _, g := range moved {
				of = append(of, g.Sink+"/"+g.Destination+" "+state(g))
			}
			if after = next; !slices.Equal(of, destinations) {
				t.Errorf("destinations: %q, want %q", of, destinations)
			}
		}
		const throttled, failing, minute = delivery.GateThrottled, delivery.GateFailing, time.Minute
		move(false, []delivery.Gate{gate("s", "", throttled, 5*minute), gate("s", "x", throttled, minute), gate("t", "", failing, minute)},
			[]string{"s", "t"}, []string{"s throttled 5m0s", "t failing 1m0s"}, []string{"s/x throttled 1m0s"})
		move(false, []delivery.Gate{gate("s", "", throttled, 5*minute)}, nil, []string{"s throttled 5m0s", "t failing 1m0s"}, nil)
		move(true, []delivery.Gate{gate("", "", throttled, minute), gate("s", "x", 0, 0), gate("t", "", 0, 0)},
			nil, []string{"s throttled 5m0s"}, []string{"s/x open"})
	})
}
