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
