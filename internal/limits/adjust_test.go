package limits

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAdjust: a count that is raised leaves less and never more; one is lowered only on demand, and what remains counts for a
// whole span from then on. Other windows stay as they are.
func TestAdjust(t *testing.T) {
	_, client := miniClient(t)
	for _, algorithm := range []string{"sliding", "fixed", "log"} {
		t.Run(algorithm, func(t *testing.T) {
			l := newLua(t, client)
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Hour, 50, time.Minute)}
			q.Windows[0].Algorithm = algorithm
			c := campaign(1000, q)
			now := settle(l, epoch, c)
			if g := take1(l, now, "a", ask(c, 10)); g.Units != 10 {
				t.Fatalf("%+v", g)
			}
			adjust := func(used int64, lower bool) Adjusted {
				t.Helper()
				l.now = now
				done, err := l.engine("person").Adjust(t.Context(), Adjustment{Quota: q, Window: 0, Used: used, Lower: lower})
				if err != nil || done.At != now {
					t.Fatalf("%+v, %v", done, err)
				}
				return done
			}
			for _, tc := range []struct {
				used        int64
				lower       bool
				before, is  int64
				left, short int64
			}{
				{60, false, 10, 60, 40, 40},
				{20, false, 60, 60, 40, 40}, // it would make room
				{60, true, 60, 60, 40, 40},
				{20, true, 60, 20, 80, 40},
				{100, false, 20, 100, 0, 40},
				{150, false, 100, 150, 0, 40},
				{0, true, 150, 0, 100, 40},
				{70, false, 0, 70, 30, 40},
			} {
				now += second
				if done := adjust(tc.used, tc.lower); done.Before != tc.before || done.Used != tc.is {
					t.Errorf("%+v: %+v", tc, done)
				}
				if left := l.left(now, q); left[0] != tc.left || left[1] != tc.short {
					t.Errorf("%+v: %v remain", tc, left)
				}
			}
			if g := take1(l, now, "a", ask(c, 50)); g.Units != 30 || g.BoundQuota != "q" {
				t.Errorf("%+v", g)
			}
			if left := l.left(now+3700*second, q); left[0] != 100 {
				t.Errorf("%v remain after an hour", left)
			}
		})
	}
}

// TestClaimsAreOnTheQuotaThatRefused: another has units for the campaign, and keeps them, too. It has refused nothing.
func TestClaimsAreOnTheQuotaThatRefused(t *testing.T) {
	_, client := miniClient(t)
	l := newLua(t, client)
	slow := &delivery.Quota{ID: "slow", Revision: 1, Windows: windows(2, time.Minute), Spend: delivery.SpendEven}
	roomy := &delivery.Quota{ID: "roomy", Revision: 1, Windows: windows(1000, time.Minute)}
	c := campaign(100, roomy, slow)
	now := settle(l, epoch, c)
	take1(l, now, "a", ask(c, 20))
	if g := take1(l, now+quantum, "a", ask(c, 20)); g.Units != 0 || g.BoundQuota != "slow" || g.NextAt < now+10*second {
		t.Fatalf("%+v", g)
	}
	for q, want := range map[*delivery.Quota]int{slow: 1, roomy: 0} {
		if list, err := l.engine("person").Claims(t.Context(), q); err != nil || len(list) != want {
			t.Errorf("%s: %+v, %v", q.ID, list, err)
		}
	}
}

// TestClaims: what is kept for a campaign that was refused units is listed, with when it asked.
func TestClaims(t *testing.T) {
	_, client := miniClient(t)
	l := newLua(t, client)
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(10, time.Second)}
	c := campaign(1000, q)
	now := settle(l, epoch, c)
	list, err := l.engine("person").Claims(t.Context(), q)
	if err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	take1(l, now, "a", ask(c, 20))
	if g := take1(l, now+quantum, "a", ask(c, 20)); g.Units != 0 || g.NextAt == 0 {
		t.Fatalf("%+v", g)
	}
	if list, err = l.engine("person").Claims(t.Context(), q); err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if one := list[0]; one.Campaign != "c" || one.Units == 0 || one.Asked.UnixMicro() != now+quantum || !one.Due.After(one.Asked) {
		t.Errorf("%+v", one)
	}
	hourly := &delivery.Quota{ID: "hourly", Revision: 1, Windows: windows(10, time.Hour)}
	take1(l, now, "a", ask(campaign(1000, hourly), 20))
	take1(l, now+quantum, "a", ask(campaign(1000, hourly), 20))
	if list, err = l.engine("person").Claims(t.Context(), hourly); err != nil || len(list) != 1 || list[0].Due.Sub(list[0].Asked) != 12500*time.Millisecond {
		t.Errorf("an hour before the next unit: %+v, %v", list, err)
	}
	l.now = now + quantum + 15*second
	if list, err = l.engine("person").Claims(t.Context(), q); err != nil || len(list) != 1 {
		t.Errorf("15 s later: %+v, %v", list, err)
	}
	l.now++
	if list, err = l.engine("person").Claims(t.Context(), q); err != nil || len(list) != 0 {
		t.Errorf("nothing is kept any more: %+v, %v", list, err)
	}
	if list, err = l.engine("person").Claims(t.Context(), &delivery.Quota{ID: "soft", Mode: delivery.ModeEventual}); list != nil || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
}
