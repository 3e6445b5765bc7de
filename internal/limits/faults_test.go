package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// The faults that limiters are known for, one test each.

// TestRefusalsLeakNothingInAnyOrder: windows that are debited one after the other lose what was granted by those before
// the one that refuses. Whatever their order in the list, none loses more than was granted.
func TestRefusalsLeakNothingInAnyOrder(t *testing.T) {
	for name, order := range map[string][]int{"long first": {2, 1, 0}, "short first": {0, 1, 2}, "tight in the middle": {1, 0, 2}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s store) {
				spec := windows(20, time.Second, 1_000, time.Minute, 100_000, time.Hour)
				q := &delivery.Quota{ID: "q", Revision: 1}
				for _, i := range order {
					q.Windows = append(q.Windows, spec[i])
				}
				c := campaign(10_000, q)
				now, granted, refused := settle(s, epoch, c), int64(0), 0
				for range 400 { // 10 s, most of it refusals
					g := take1(s, now, "a", ask(c, 50))
					granted += g.Units
					if g.Units == 0 {
						refused++
					}
					now += quantum
				}
				if granted < 150 || refused < 200 {
					t.Fatalf("granted %d, refused %d: the test shows nothing", granted, refused)
				}
				for i, w := range s.Peek(now, []*delivery.Quota{q}) {
					spec := q.Windows[i]
					if used := spec.Limit - w.Remaining; spec.Span >= time.Minute && used != granted {
						t.Errorf("the window of %s lost %d units, granted were %d", spec.Span, used, granted)
					}
				}
			})
		})
	}
}

// TestResetDoesNotWobble: a reset that is worked out from a time to live and a local clock differs from call to call by a
// millisecond or a second. Here it is a stored time, which all daemons and peeks see alike.
func TestResetDoesNotWobble(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		for i, w := range []delivery.Window{
			{Span: time.Hour, Limit: 3, Algorithm: delivery.AlgorithmSliding},
			{Span: time.Hour, Limit: 3, Algorithm: delivery.AlgorithmFixed},
			{Span: time.Hour, Limit: 3, Algorithm: delivery.AlgorithmFixed, Anchor: "hour@Asia/Kolkata"},
		} {
			q := &delivery.Quota{ID: fmt.Sprint("q", i), Revision: 1, Windows: []delivery.Window{w}}
			c := campaign(1000, q)
			c.ID = q.ID
			now := settle(s, epoch+123_457, c)
			seen := map[int64]bool{take1(s, now, "a", ask(c, 3)).Windows[0].ResetAt: true}
			for k := range int64(60) {
				now += 999 + k
				seen[take1(s, now, fmt.Sprint("n", k%3), ask(c, 1)).Windows[0].ResetAt] = true
				seen[s.Peek(now, []*delivery.Quota{q})[0].ResetAt] = true
			}
			if len(seen) != 1 {
				t.Errorf("%s %s: %d different resets", w.Algorithm, w.Anchor, len(seen))
			}
		}
	})
}

// TestTheLastMillisecondOfAWindow: a fixed window used up in its last millisecond, and again in the next one's first, puts twice the
// limit into an instant. Units granted before the reset but sent after it count nowhere. Here what may be sent after the reset counts in
// the next window, too; and a sliding window is exact.
func TestTheLastMillisecondOfAWindow(t *testing.T) {
	const limit = 10
	for _, algorithm := range []string{delivery.AlgorithmFixed, delivery.AlgorithmSliding, delivery.AlgorithmLog} {
		t.Run(algorithm, func(t *testing.T) {
			simulate(t, func(t *testing.T, s store) {
				q := &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Minute, Limit: limit, Algorithm: algorithm}}}
				c := campaign(1000, q)
				now := settle(s, epoch, c)
				take := func(at, want int64) []int64 {
					var slots []int64
					g := take1(s, at, "a", ask(c, want))
					for i := range g.Units {
						slots = append(slots, g.First.Advance(i, g.Rate).Micros())
					}
					return slots
				}
				reset := now + time.Minute.Microseconds()
				sent := take(now, 1) // opens the window
				sent = append(sent, take(reset-1000, limit)...)
				before := len(sent)
				for at := reset; at < reset+time.Minute.Microseconds(); at += 500_000 {
					sent = append(sent, take(at, limit)...)
				}
				if before != limit {
					t.Fatalf("%d granted before the reset", before)
				}
				after := 0
				for _, at := range sent {
					if at >= reset {
						after++
					}
				}
				if after > limit {
					t.Errorf("%d are sent in the window after the reset, limit %d", after, limit)
				}
				if most := rolling(sent, time.Minute.Microseconds()); algorithm != delivery.AlgorithmFixed && most > limit {
					t.Errorf("%d in a rolling minute, limit %d", most, limit)
				}
				next := take(reset+2*time.Minute.Microseconds(), limit)
				if len(next) != limit {
					t.Errorf("%d granted two windows later", len(next))
				}
			})
		})
	}
}

// TestFractionsOfAQuantumAreNotLost: 150/s are one and a half units in 10 ms. A limiter that charges fractions and hands
// out whole units delivers two thirds of them.
func TestFractionsOfAQuantumAreNotLost(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		c := campaign(150)
		now := settle(s, epoch, c)
		var slots []int64
		end := now + 10*second
		for ; now < end; now += 10_000 {
			a := ask(c, 2)
			a.Quantum, a.Horizon = 10_000, 10_000
			g := take1(s, now, "a", a)
			for i := range g.Units {
				slots = append(slots, g.First.Advance(i, g.Rate).Micros())
			}
		}
		if n := len(slots); n < 1500 || n > 1502 { // the last quantum reaches beyond the end
			t.Errorf("%d granted in 10 s, want 1500", n)
		}
		if most := rolling(slots, second); most > 151 {
			t.Errorf("%d in a rolling second", most)
		}
	})
}

// TestABurstOfOneGrantsToAFreshKey: where a cell rate algorithm compares a fresh key's first unit with a burst that it
// has to be below of, nothing is ever granted.
func TestABurstOfOneGrantsToAFreshKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		for _, rate := range []int64{5, 1_000} {
			c := campaign(rate, &delivery.Quota{ID: fmt.Sprint(rate), Revision: 1, Windows: windows(1, time.Minute)})
			c.ID, c.Burst = fmt.Sprint(rate), 1
			a := ask(c, 1)
			a.Horizon = 200_000 // as far as the first slot of a new timeline may be put off
			if g := take1(s, epoch, "a", a); g.Units != 1 || g.First.At >= epoch+200_000 {
				t.Errorf("%d/s: %+v", rate, g)
			}
		}
	})
}

// TestMonitoringOpensNoWindow: a dashboard that looks at a quota every second neither starts its fixed window nor takes
// units; the first job does.
func TestMonitoringOpensNoWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Minute, Limit: 5, Algorithm: delivery.AlgorithmFixed}}}
		c := campaign(1000, q)
		now := settle(s, epoch, c)
		for range 45 {
			now += second
			w := s.Peek(now, []*delivery.Quota{q})
			if want := []delivery.WindowState{{Quota: "q", Remaining: 5, ResetAt: now}}; !slices.Equal(w, want) {
				t.Fatalf("%+v, want %+v", w, want)
			}
		}
		if g := take1(s, now, "a", ask(c, 9)); g.Units != 5 || g.Windows[0].ResetAt != now+time.Minute.Microseconds() {
			t.Errorf("%+v: the window does not begin with the first job, at %d", g, now)
		}
	})
}

// TestATimelineLivesAsLongAsItsRateAsks: with its key a timeline loses its last slot, and the credit of a burst.
func TestATimelineLivesAsLongAsItsRateAsks(t *testing.T) {
	client := realClient(t)
	l := newLua(t, client)
	life := func(c *delivery.Campaign) time.Duration {
		d, err := client.PTTL(t.Context(), l.engine("a").shards[0].keys.timeline(c.ID)).Result()
		must(t, err)
		return d
	}
	fast := campaign(1000)
	take1(l, epoch, "a", ask(fast, 1))
	slow := *fast
	slow.Revision, slow.Rate = 2, delivery.Rate{N: 1, Per: 24 * 3600 * second}
	take1(l, epoch+60*second, "a", ask(&slow, 1))
	if d := life(&slow); d < 72*time.Hour {
		t.Errorf("at one a day since a minute, its key lives for %s", d)
	}
	bursts := *fast
	bursts.Revision, bursts.Burst = 3, 100
	take1(l, epoch+120*second, "a", ask(&bursts, 1))
	if d := life(&bursts); d < 30*24*time.Hour {
		t.Errorf("with a burst, its key lives for %s", d)
	}
}
