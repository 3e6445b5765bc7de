package pacer

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestATimelineIsAListOfSlots: after any grants, uses and refunds, also of what an older rate has granted alone, a timeline agrees with a list of its slots.
func TestATimelineIsAListOfSlots(t *testing.T) {
	limited := &delivery.Campaign{ID: "c", Quotas: []*delivery.Quota{{ID: "q"}}}
	rapid.Check(t, func(rt *rapid.T) {
		tl := timeline{early: rapid.Int64Range(0, 5000).Draw(rt, "early")}
		type slot struct{ at, grantedAt, revision int64 }
		var slots []slot
		last, now, revision := int64(0), int64(1_000_000), int64(0)
		next := delivery.Slot{At: now}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1:
				now += rapid.Int64Range(0, 50_000).Draw(rt, "later")
				rate := delivery.PerSecond(rapid.Int64Range(1, 5000).Draw(rt, "rate"))
				g := delivery.Grant{First: next, Rate: rate, Units: rapid.Int64Range(0, 20).Draw(rt, "units"), GrantedAt: now}
				revision += rapid.Int64Range(0, 1).Draw(rt, "change")
				g.From.Campaign, g.Revision = limited, revision
				tl.add(g)
				for i := range g.Units {
					slots = append(slots, slot{g.First.Advance(i, rate).Micros(), now, revision})
				}
				next = delivery.Slot{At: g.First.Advance(g.Units, rate).Micros()}
			case 2:
				n := rapid.Int64Range(0, int64(len(slots))).Draw(rt, "use")
				counted := tl.use(n)
				var sum int64
				for _, c := range counted {
					sum += c.Units
				}
				if sum != n {
					rt.Fatalf("%d of %d slots count for quotas", sum, n)
				}
				if n > 0 {
					last = slots[n-1].at
				}
				slots = slots[n:]
			case 3:
				if len(slots) == 0 {
					continue
				}
				late := now + rapid.Int64Range(-20_000, 100_000).Draw(rt, "late")
				want := int64(0)
				for _, s := range slots[:tl.grants[0].Units] {
					if s.at <= late && s.grantedAt <= late {
						want++
					}
				}
				if got := tl.tooLate(late); got != want {
					rt.Fatalf("%d are too late, want %d", got, want)
				}
			case 4:
				from := rapid.SampledFrom([]int64{noRevision, revision, revision - 1}).Draw(rt, "from")
				kept := slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return s.revision < from })
				back, units := tl.withdraw(from)
				var sum int64
				before := int64(1) << 62
				for _, g := range back {
					end := g.First.Advance(g.Units-1, g.Rate).Micros()
					if end > before {
						rt.Fatal("not from the end of the timeline on")
					}
					before, sum = g.First.Micros(), sum+g.Units
				}
				if sum != int64(len(slots)-len(kept)) || sum != units {
					rt.Fatalf("%d, said to be %d, are handed back of %d, and %d kept", sum, units, len(slots), len(kept))
				}
				slots = kept
			}
			if tl.granted != int64(len(slots)) {
				rt.Fatalf("%d granted, want %d", tl.granted, len(slots))
			}
			until := last
			if n := len(slots); n > 0 {
				until = slots[n-1].at
				if due := max(slots[0].at, slots[0].grantedAt-tl.early); tl.due() != due {
					rt.Fatalf("due at %d, want %d", tl.due(), due)
				}
			}
			if got := tl.lastGranted(); got != until {
				rt.Fatalf("held until %d, want %d", got, until)
			}
		}
	})
}

// TestTheWallClockMayBeSet after the daemon has started: times of the local clock are as far from now by the wall clock.
func TestTheWallClockMayBeSet(t *testing.T) {
	wall := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	now := instant{local: 1_000_000_000, wall: wall} // whatever the wall clock was at the start
	exactly(t, now.timeOf(1_005_000_000), wall.Add(5*time.Second), "the time in five seconds")
	j := &delivery.Job{Reading: delivery.Reading{From: delivery.FromTimer}}
	j.Reason, j.EnqueuedAt = string(delivery.ReasonRetry), delivery.StampOf(wall.Add(-5*time.Second))
	exactly(t, now.lastTry(j), 995_000_000, "a job of five seconds ago was tried at")
}
