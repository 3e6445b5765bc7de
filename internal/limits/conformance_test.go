package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

func TestAFreshTimelineIsPutOffByLessThanTwoTenths(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		firsts := map[int64]bool{}
		for i := range 20 {
			c := campaign(1)
			c.ID = fmt.Sprint(i)
			a := ask(c, 1)
			a.Horizon = second
			g := take1(s, epoch, "a", a)
			if g.Units != 1 || g.First.At < epoch || g.First.At >= epoch+200_000 {
				t.Fatalf("%+v", g)
			}
			firsts[g.First.At] = true
		}
		if len(firsts) < 15 {
			t.Errorf("20 campaigns begin at %d instants", len(firsts))
		}
	})
}

// A slow timeline whose slot passed by a little goes on as it was; by more, it goes on at its phase, unless all there is to
// send is one unit, which goes at once.
func TestASlowTimelineKeepsItsPlace(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(5)
		const spacing = 200_000
		slot := settle(s, epoch, c)
		if g := take1(s, slot, "a", ask(c, 1)); g.First.Micros() != slot {
			t.Fatalf("%+v", g)
		}
		slot += spacing
		g := take1(s, slot+delivery.WireMargin(late), "a", ask(c, 2))
		if g.Units == 0 || g.First.Micros() != slot {
			t.Fatalf("a little late: %+v", g)
		}
		slot = g.First.Advance(g.Units, g.Rate).Micros()
		for _, by := range []int64{delivery.WireMargin(late) + 1, 30_000, 150_000} {
			now := slot + by
			g := take1(s, now, "a", ask(c, 2))
			first := now + ((model.Phase(c.ID, c.Rate)-now)%spacing+spacing)%spacing
			if g.Units == 0 && g.NextAt < first {
				now = first - horizon/2
				g = take1(s, now, "a", ask(c, 2))
			}
			if g.Units == 0 || g.First.Micros() != first {
				t.Fatalf("%d late: %+v, want %d", by, g, first)
			}
			slot = g.First.Advance(g.Units, g.Rate).Micros()
		}
		now := slot + 10*second // what was cut short is forgotten
		if g := take1(s, now, "a", ask(c, 1)); g.First.Micros() != now {
			t.Fatalf("idle: %+v, want %d", g, now)
		}
		now += spacing + 30_000
		if g := take1(s, now, "a", ask(c, 1)); g.First.Micros() != now {
			t.Fatalf("one unit: %+v, want %d", g, now)
		}
	})
}

func TestANewRateBeginsAfterTheLastGrantedSlot(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(100)
		now := settle(s, epoch, c)
		g := take1(s, now, "a", ask(c, 100))
		last := g.First.Advance(g.Units-1, g.Rate).Micros()
		faster := *c
		faster.Revision, faster.Rate = 2, delivery.PerSecond(1000)
		g = take1(s, now, "a", ask(&faster, 100))
		if g.First.At != last+1000 || g.Units != (now+horizon-last)/1000 || g.Rate != faster.Rate || g.Revision != 2 {
			t.Errorf("%+v, last %d", g, last)
		}
		// A daemon that has not heard of it gets slots of the new timeline.
		slower := *c
		g = take1(s, now+second, "b", ask(&slower, 100))
		if g.Rate != faster.Rate || g.Revision != 2 {
			t.Errorf("an old catalog got %+v", g)
		}
	})
}

func TestAStaleDaemonCannotRaiseALimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 5, Windows: windows(3, time.Minute)}
		old := &delivery.Quota{ID: "q", Revision: 4, Windows: windows(100, time.Minute)}
		c := campaign(1000, q)
		now := settle(s, epoch, c)
		if g := take1(s, now, "a", ask(c, 2)); g.Units != 2 {
			t.Fatalf("%+v", g)
		}
		for _, stale := range []*delivery.Quota{
			old,
			{ID: "q", Revision: 4, Windows: windows(3, time.Minute), Mode: delivery.ModeShadow},
			{ID: "q", Revision: 4, Windows: windows(3, time.Minute), Exempt: 90},
			{ID: "q", Revision: 4, Windows: windows(100, time.Second)},
		} {
			g := take1(s, now+second, "b", ask(campaign(1000, stale), 50))
			if g.Units != 0 || g.Bound != delivery.BindQuota || g.NextAt <= now+second {
				t.Errorf("%+v: %+v", stale, g)
			}
		}
		// Counts are kept when the limit is raised in earnest.
		raised := &delivery.Quota{ID: "q", Revision: 6, Windows: windows(10, time.Minute)}
		if g := take1(s, now+2*second, "a", ask(campaign(1000, raised), 50)); g.Units != 8 {
			t.Errorf("%+v", g)
		}
	})
}

func TestRefundGoesBackWhereItCameFrom(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Second, 1000, time.Hour)}
		c := campaign(1000, q)
		now := settle(s, epoch, c)
		g := take1(s, now, "a", ask(c, 40))
		back := g.Grant()
		back.First, back.Units = g.First.Advance(10, g.Rate), 30
		s.Refund(now+1000, []delivery.Grant{back})
		w := s.Peek(now+1000, []*delivery.Quota{q})
		if w[0].Remaining != 90 || w[1].Remaining != 990 {
			t.Errorf("%+v", w)
		}
		if g = take1(s, now+1000, "a", ask(c, 5)); g.First != back.First {
			t.Errorf("the freed slots are not granted again: %+v", g)
		}
		// Long after, the bucket is gone from the short window, not from the long one.
		s.Refund(now+5*second, []delivery.Grant{g.Grant()})
		w = s.Peek(now+5*second, []*delivery.Quota{q})
		if w[0].Remaining != 100 || w[1].Remaining != 990 {
			t.Errorf("%+v", w)
		}
	})
}

// TestUnitsThatCountInTwoWindowsComeBackToBoth: those that were granted just before a reset, also when they come back after it.
func TestUnitsThatCountInTwoWindowsComeBackToBoth(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		for _, anchor := range []string{"", "minute"} {
			q := &delivery.Quota{ID: "q" + anchor, Revision: 1, Windows: windows(100, time.Minute)}
			q.Windows[0].Algorithm, q.Windows[0].Anchor = delivery.AlgorithmFixed, anchor
			c := campaign(1000, q)
			c.ID += anchor
			begin := settle(s, (epoch/(60*second)+3)*60*second, c)
			before := take1(s, begin, "a", ask(c, 10))
			reset := s.Peek(begin, []*delivery.Quota{q})[0].ResetAt
			tail := take1(s, reset-1000, "a", ask(c, 20))
			left := func(what string, now, want int64) {
				t.Helper()
				if w := s.Peek(now, []*delivery.Quota{q})[0]; before.Units != 10 || tail.Units != 20 || w.Remaining != want {
					t.Errorf("%q: after %d and %d units, %s, %d remain, want %d", anchor, before.Units, tail.Units, what, w.Remaining, want)
				}
			}
			left("before the reset", reset-1000, 70)
			left("after it", reset+1000, 80)
			s.Refund(reset+1000, []delivery.Grant{before.Grant()})
			left("of which the first came back", reset+1000, 80)
			back := tail.Grant()
			back.First, back.Units = tail.First.Advance(5, tail.Rate), 15
			s.Refund(reset+1000, []delivery.Grant{back})
			left("of which 15 came back", reset+1000, 95)
			left("a window later", reset+61*second, 100)
		}
	})
}

// TestAShadowQuotaGetsBackWhatItCounted, and no more: once it is strict, it grants what its window has not counted.
func TestAShadowQuotaGetsBackWhatItCounted(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(20, time.Hour), Mode: delivery.ModeShadow}
		strict := *q
		strict.Revision, strict.Mode = 2, ""
		now := settle(s, epoch, campaign(1000, q))
		for _, tc := range []struct{ want, back, counted int64 }{{10, 6, 4}, {50, 40, 20}, {30, 30, 20}} {
			now += second
			g := take1(s, now, "a", ask(campaign(1000, q), tc.want))
			back := g.Grant()
			back.First, back.Units = g.First.Advance(g.Units-tc.back, g.Rate), tc.back
			s.Refund(now+1000, []delivery.Grant{back})
			if counted := 20 - s.Peek(now+1000, []*delivery.Quota{q})[0].Remaining; g.Units != tc.want || counted != tc.counted {
				t.Errorf("%d units were granted and %d handed back: %d are counted, want %d", g.Units, tc.back, counted, tc.counted)
			}
		}
		if g := take1(s, now+second, "a", ask(campaign(1000, &strict), 5)); g.Units != 0 {
			t.Errorf("%d units beyond the limit", g.Units)
		}
	})
}

func TestAFailOverNeverFallsBackBelowWhatIsHeld(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(10)
		now := settle(s, epoch, c)
		a := ask(c, 5)
		a.LastGranted = now + 3*second
		if g := take1(s, now, "a", a); g.Units != 0 || g.NextAt != a.LastGranted+100_000-horizon {
			t.Errorf("%+v", g)
		}
	})
}

func TestWeightsAreGrantedWhole(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(100)
		now := settle(s, epoch, c)
		a := ask(c, 1000)
		a.Weights = []int64{3, 4, 500, 2}
		// Eight slots lie within the horizon; the third job begins at the eighth.
		if g := take1(s, now, "a", a); g.Units != 507 {
			t.Errorf("%+v", g)
		}
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(10, time.Minute)}
		limited := campaign(100, q)
		limited.ID = "limited"
		now = settle(s, now+second, limited)
		a = ask(limited, 1000)
		a.Weights = []int64{3, 4, 5}
		g := take1(s, now, "a", a)
		if g.Units != 7 || g.Bound != delivery.BindQuota || g.NextAt == 0 {
			t.Errorf("%+v", g)
		}
		for weight, ever := range map[int64]bool{10: true, 11: false} { // the limit, and above it
			a.Weights = []int64{weight}
			if g = take1(s, now+1, "a", a); g.Units != 0 || (g.NextAt > 0) != ever {
				t.Errorf("a job of %d units: %+v", weight, g)
			}
		}
	})
}

// Of several daemons that close a gate for one cause, one is told that it was the first.
func TestWhoClosesAGateFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		now := settle(s, epoch, campaign(1000))
		for i, tc := range []struct {
			at      int64
			cause   delivery.GateCause
			changed bool
		}{
			{0, delivery.GateFailing, true},
			{1, delivery.GateFailing, false},
			{2, delivery.GateMisconfigured, true},
			{5 * second, delivery.GateMisconfigured, false}, // half-open meanwhile
			{6 * second, delivery.GateThrottled, true},
			{6*second + 1, delivery.GateThrottled, false},
			{8 * second, delivery.GateThrottled, false}, // half-open meanwhile
		} {
			at := now + tc.at
			if got := s.CloseGate(at, "sink", at+second, tc.cause); got != tc.changed {
				t.Errorf("call %d: changed %t", i, got)
			}
		}
	})
}

// A burst is credit for idle time. Without one, idling saves nothing up.
func TestBurstIsCreditForIdleTime(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		now := epoch
		for _, burst := range []int64{0, 5} {
			c := campaign(10)
			c.ID, c.Burst = fmt.Sprint(burst), burst
			now = settle(s, now, c)
			for range 3 {
				now += 30 * second
				if g := take1(s, now, "a", ask(c, 100)); g.Units != burst+1 || burst == 0 && g.First.Micros() != now {
					t.Errorf("a burst of %d after idling: %+v, want it and a slot", burst, g)
				}
				if g := take1(s, now, "a", ask(c, 100)); g.Units != 0 {
					t.Errorf("a burst of %d: granted %d more at the same instant", burst, g.Units)
				}
			}
		}
	})
}

// A closed gate stops its campaigns until its time. Then one job a second is tried, until a success opens it. Failures do not shorten
// what a destination asked for, and alone do not stop anybody.
func TestAGateStopsItsCampaigns(t *testing.T) {
	const throttled, misconfigured, failing = delivery.GateThrottled, delivery.GateMisconfigured, delivery.GateFailing
	eachStore(t, func(t *testing.T, s store) {
		c, other := campaign(1000), campaign(1000)
		other.ID = "other"
		settle(s, epoch, other)
		begin, a := settle(s, epoch, c), ask(c, 10)
		a.Gate = "sink"
		for _, step := range []struct {
			what  string
			at    int64              // milliseconds after the begin, as other times
			cause delivery.GateCause // for which it is closed
			until int64              // 0: it is not closed
			opens bool
			units int64 // that are granted then
			next  int64 // 0: not compared
		}{
			{"closed", 0, throttled, 2000, false, 0, 2000},
			{"closed for less", 0, throttled, 1000, false, 0, 2000},
			{"after a throttling", 2000, 0, 0, false, 1, 3000},
			{"soon after the first try", 2001, 0, 0, false, 0, 2251},
			{"opened", 2002, 0, 0, true, 10, 0},
			{"misconfigured", 5000, misconfigured, 6000, false, 0, 6000},
			{"after a wrong setting", 6000, 0, 0, false, 1, 7000},
			{"soon after the second try", 6001, 0, 0, false, 0, 7000},
			{"opened again", 6002, 0, 0, true, 10, 0},
			{"put off by the destination", 6003, throttled, 66_000, false, 0, 66_000},
			{"a failure meanwhile", 6004, failing, 7000, false, 0, 66_000},
			{"after the failure", 8000, 0, 0, false, 0, 66_000},
			{"a success meanwhile", 9000, 0, 0, true, 10, 0},
			{"failing only", 10_000, failing, 66_000, false, 10, 0},
		} {
			now := begin + step.at*1000
			if step.until > 0 {
				s.CloseGate(now, "sink", begin+step.until*1000, step.cause)
			}
			if step.opens {
				s.OpenGate("sink")
			}
			g := take1(s, now, fmt.Sprint("n", step.at%3), a)
			if g.Units != step.units || g.Units < 10 && g.Bound != delivery.BindGate || step.next > 0 && g.NextAt != begin+step.next*1000 {
				t.Errorf("%s: %+v", step.what, g)
			}
			if g = take1(s, now, "n", ask(other, 1)); g.Units != 1 {
				t.Errorf("%s: a campaign without the gate got %+v", step.what, g)
			}
		}
	})
}

// A window that gets narrower goes on doing so at once, however many campaigns of a take ask for units of it.
func TestAWindowGetsNarrowerStepByStep(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, 2*time.Second)}
		c, other := campaign(1000, q), campaign(1000, q)
		other.ID = "other"
		now := settle(s, epoch, c)
		within := func(horizon int64, of ...*delivery.Campaign) (g delivery.Granted) {
			var asks []delivery.Ask
			for _, c := range of {
				a := ask(c, 1)
				a.Horizon = horizon
				asks = append(asks, a)
			}
			return s.Take(now, "a", asks).Items[0]
		}
		within(3*second, c)
		now += quantum
		within(horizon, c)
		now += 6 * second
		within(quantum, c, other)
		now += 3 * second
		width := model.Step(delivery.Window{Span: 2 * time.Second})
		want := (now/width+1)*width + 2*second + quantum + late
		if g := within(quantum, c); g.Units != 1 || g.Windows[0].ResetAt != want {
			t.Errorf("%+v, want the reset at %d", g, want)
		}
	})
}
