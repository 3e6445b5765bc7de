package limits

import (
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// The faults that limiters are known for, one test each.

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
