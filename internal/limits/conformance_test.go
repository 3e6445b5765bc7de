package limits

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

func TestRateZeroGrantsNothingAndTellsWhy(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		g := take1(s, epoch, "a", ask(&delivery.Campaign{ID: "c", Revision: 1}, 5))
		if g.Units != 0 || g.Bound != delivery.BindHeld || g.NextAt != 0 {
			t.Errorf("%+v", g)
		}
	})
}

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

func TestIdleTimelineSendsAtOnceAndWithoutABurst(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(10)
		now := settle(s, epoch, c)
		for range 3 {
			now += 30 * second
			g := take1(s, now, "a", ask(c, 100))
			if g.Units != 1 || g.First.Micros() != now {
				t.Fatalf("%+v", g)
			}
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

func TestBurstIsCreditForIdleTime(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(10)
		c.Burst = 5
		now := settle(s, epoch, c) + 10*second
		if g := take1(s, now, "a", ask(c, 100)); g.Units != 6 {
			t.Errorf("granted %d after idling, want the burst of 5 and a slot", g.Units)
		}
		if g := take1(s, now, "a", ask(c, 100)); g.Units != 0 {
			t.Errorf("granted %d more at the same instant", g.Units)
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

func TestADenialDebitsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Second, 10, time.Minute, 1000, time.Hour)}
		c := campaign(1000, q)
		now := settle(s, epoch, c)
		g := take1(s, now, "a", ask(c, 50))
		if g.Units != 10 || g.BoundQuota != "q" || g.BoundWindow != 1 {
			t.Fatalf("%+v", g)
		}
		want, next := s.Peek(now, []*delivery.Quota{q}), g.NextAt
		for i := range int64(5) {
			g = take1(s, now+i*100_000, "a", ask(c, 50))
			if g.Units != 0 || g.NextAt != next {
				t.Errorf("denial %d: %+v", i, g)
			}
		}
		got := s.Peek(now+1000, []*delivery.Quota{q})
		if !slices.Equal(got, want) {
			t.Errorf("windows %+v, were %+v", got, want)
		}
		for i, rest := range []int64{90, 0, 990} {
			if got[i].Remaining != rest {
				t.Errorf("window %d has %d left, want %d: all are debited alike", i, got[i].Remaining, rest)
			}
		}
		if g = take1(s, next-1, "a", ask(c, 50)); g.Units != 0 {
			t.Errorf("granted %d before next_at", g.Units)
		}
		if g = take1(s, next, "a", ask(c, 50)); g.Units != 10 {
			t.Errorf("granted %d at next_at", g.Units)
		}
	})
}

func TestPeekOpensNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Second)}
		for _, now := range []int64{epoch, epoch + 7} {
			w := s.Peek(now, []*delivery.Quota{q})
			if len(w) != 1 || w[0].Remaining != 100 || w[0].ResetAt != now {
				t.Errorf("%+v at %d", w, now)
			}
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

// Units granted just before a period ends count in the next one, too, since they may be sent in it: not those that were handed back.
func TestRefundOfAPeriodsEndLeavesTheNextPeriod(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Minute)}
		q.Windows[0].Algorithm = delivery.AlgorithmFixed
		c := campaign(1000, q)
		now := settle(s, epoch, c)
		take1(s, now, "a", ask(c, 40))
		end := now + 60*second
		g := take1(s, end-horizon, "a", ask(c, 30))
		if g.Units != 30 {
			t.Fatalf("%+v", g)
		}
		back := g.Grant()
		back.First, back.Units = g.First.Advance(10, g.Rate), 20
		s.Refund(end-horizon+1000, []delivery.Grant{back})
		if w := s.Peek(end, []*delivery.Quota{q}); w[0].Remaining != 90 {
			t.Errorf("%+v", w)
		}
	})
}

// Units of a fixed window that has ended are no room of the one after it.
func TestARefundOfAPeriodThatIsOverGivesNothingBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Minute)}
		q.Windows[0].Algorithm = delivery.AlgorithmFixed
		c := campaign(1000, q)
		now := settle(s, epoch, c)
		before := take1(s, now, "a", ask(c, 60))
		now += 61 * second
		after := take1(s, now, "a", ask(c, 70))
		if before.Units != 60 || after.Units != 70 {
			t.Fatalf("%+v, %+v", before, after)
		}
		s.Refund(now, []delivery.Grant{before.Grant()})
		if w := s.Peek(now, []*delivery.Quota{q}); w[0].Remaining != 30 {
			t.Errorf("%+v", w)
		}
	})
}

// Units are kept for a waiting campaign because the quota lacked them. With a higher limit it may ask at once.
func TestNothingIsKeptOnceALimitIsRaised(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(20, 10*time.Second)}
		waits, other := campaign(1000, q), campaign(1000, q)
		other.ID = "other"
		now := settle(s, epoch, waits)
		now = max(now, settle(s, epoch, other))
		if g := take1(s, now, "a", ask(waits, 30)); g.Units != 20 || g.Bound != delivery.BindQuota {
			t.Fatalf("%+v", g)
		}
		raised := *q
		raised.Revision, raised.Windows = 2, windows(40, 10*time.Second)
		other.Quotas = []*delivery.Quota{&raised}
		if g := take1(s, now+1000, "a", ask(other, 20)); g.Units != 20 {
			t.Errorf("%+v", g)
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
		a.Weights = []int64{11}
		if g = take1(s, now+1, "a", a); g.Units != 0 || g.NextAt != 0 {
			t.Errorf("a job above the limit: %+v", g)
		}
	})
}

func TestAClosedGate(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(1000)
		now := settle(s, epoch, c)
		a := ask(c, 10)
		a.Gate = "sink"
		until := now + 2*second
		s.CloseGate(now, "sink", until, delivery.GateThrottled)
		s.CloseGate(now, "sink", until-second, delivery.GateThrottled) // never shortens
		g := take1(s, now, "a", a)
		if g.Units != 0 || g.Bound != delivery.BindGate || g.NextAt != until {
			t.Fatalf("%+v", g)
		}
		other := ask(campaign(1000), 10)
		other.Campaign.ID = "other"
		settle(s, now, other.Campaign)
		if g = take1(s, now+second, "a", other); g.Units != 10 {
			t.Errorf("a campaign without the gate got %+v", g)
		}
		if g = take1(s, until, "a", a); g.Units != 1 || g.NextAt != until+second { // one is tried
			t.Errorf("after the gate: %+v", g)
		}
		s.OpenGate("sink")
		if g = take1(s, until+1, "a", a); g.Units < 9 {
			t.Errorf("opened: %+v", g)
		}
	})
}

func TestAProbedGateLetsOneJobThroughASecond(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		c := campaign(1000)
		now := settle(s, epoch, c)
		a := ask(c, 10)
		a.Gate = "sink"
		until := now + second
		s.CloseGate(now, "sink", until, delivery.GateMisconfigured)
		if g := take1(s, now, "a", a); g.Units != 0 || g.NextAt != until {
			t.Fatalf("%+v", g)
		}
		if g := take1(s, until, "a", a); g.Units != 1 || g.Bound != delivery.BindGate || g.NextAt != until+second {
			t.Errorf("%+v", g)
		}
		if g := take1(s, until+1, "b", a); g.Units != 0 || g.NextAt != until+second {
			t.Errorf("%+v", g)
		}
		s.OpenGate("sink")
		if g := take1(s, until+2, "b", a); g.Units != 10 {
			t.Errorf("%+v", g)
		}
		asked := until + 60*second // by the destination: no failure shortens it, a success does
		s.CloseGate(until+3, "sink", asked, delivery.GateThrottled)
		s.CloseGate(until+4, "sink", until+second, delivery.GateFailing)
		if g := take1(s, until+2*second, "b", a); g.Units != 0 || g.Bound != delivery.BindGate {
			t.Errorf("%+v", g)
		}
		s.OpenGate("sink")
		if g := take1(s, until+3*second, "b", a); g.Units != 10 {
			t.Errorf("%+v", g)
		}
		s.CloseGate(until+4*second, "sink", until+60*second, delivery.GateFailing) // is only shown
		if g := take1(s, until+5*second, "b", a); g.Units != 10 {
			t.Errorf("%+v", g)
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

// Delivered rate for rates and quanta that make integers awkward.
func TestEveryRateIsDelivered(t *testing.T) {
	for _, tc := range []struct {
		micros  int64
		per     time.Duration
		quantum int64
		seconds int64
	}{
		{150_000_000, time.Second, 10_000, 5},
		{2_310_000, time.Second, 25_000, 60},
		{1_000_000, time.Hour, 25_000, 24 * 3600},
		{250_000_000_000, time.Second, 25_000, 1},
		{33_333_333_333, time.Second, 10_000, 1},
	} {
		t.Run(fmt.Sprintf("%gper%s", float64(tc.micros)/1e6, tc.per), func(t *testing.T) {
			simulate(t, func(t *testing.T, s store) {
				rate, err := delivery.NewRate(tc.micros, tc.per)
				if err != nil {
					t.Fatal(err)
				}
				c := &delivery.Campaign{ID: "c", Revision: 1, Rate: rate}
				now, end, units := settle(s, epoch, c), int64(0), int64(0)
				begin := now
				for end = begin + tc.seconds*second; now < end; {
					a := ask(c, delivery.MaxGrant)
					a.Quantum, a.Horizon = tc.quantum, 3*tc.quantum
					g := take1(s, now, "a", a)
					units += g.Units
					now = max(now+tc.quantum, g.NextAt)
				}
				want := rate.UnitsIn(time.Duration(tc.seconds) * time.Second)
				if units*1000 < want*995 || units > want+rate.UnitsIn(time.Duration(3*tc.quantum)*time.Microsecond)+1 {
					t.Errorf("granted %d, want %d", units, want)
				}
			})
		})
	}
}

// No rolling span holds more dispatches than the limit, dispatched as late as is allowed or at once.
func TestNoRollingSpanHoldsMoreThanTheLimit(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		rnd := rand.New(rand.NewPCG(7, 7))
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(40, time.Second, 150, 5*time.Second, 400, 20*time.Second)}
		var asks []delivery.Ask
		for i := range 3 {
			c := campaign(200, q)
			c.ID = fmt.Sprint(i)
			asks = append(asks, ask(c, 100))
			asks[i].Horizon = quantum
		}
		var sent []int64
		now := epoch
		lasts := length(s, 60, 30)
		for now < epoch+lasts {
			node := fmt.Sprintf("n%d", rnd.IntN(3))
			for i := range asks {
				asks[i].Want = rnd.Int64N(20)
			}
			for _, g := range s.Take(now, node, asks).Items {
				for i := range g.Units {
					sent = append(sent, g.First.Advance(i, g.Rate).Micros()+rnd.Int64N(2)*late)
				}
			}
			now += rnd.Int64N(2 * quantum)
			if rnd.IntN(300) == 0 {
				now += rnd.Int64N(3 * second) // idle
			}
		}
		slices.Sort(sent)
		for _, w := range q.Windows {
			if most := rolling(sent, w.Span.Microseconds()); most > w.Limit {
				t.Errorf("%d in a rolling %s, limit %d", most, w.Span, w.Limit)
			}
		}
		if int64(len(sent)) < 15*lasts/second {
			t.Errorf("only %d sent", len(sent))
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
