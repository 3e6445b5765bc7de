package limits

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/local"
	"github.com/pacer/pacer/internal/testservices"
)

// TestHugeCountsStayShort: how long the state of a window is does not grow with its count, and nothing counts for less.
func TestHugeCountsStayShort(t *testing.T) {
	client := clientOf(t, testservices.FreshRedis(t).Addr)
	l := newLua(t, client)
	const used = 1_000_000_000_000
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(2*used, time.Hour)}
	c := campaign(1000, q)
	now := settle(l, epoch, c)
	s := l.engine("a").shards[0]
	must(t, s.once(t.Context(), chargeScript, func(slot *scriptSlot) *call {
		return encodeCharge(s.keys, "a", slot, []local.Charge{{Quota: q, Units: used}}, now)
	}))
	for granted := int64(1); granted <= 5; granted++ {
		now += 70 * second
		if g := take1(l, now, "a", ask(c, 1)); g.Units != 1 || g.Windows[0].Remaining != used-granted {
			t.Fatalf("%+v", g)
		}
	}
	if n, err := client.StrLen(t.Context(), s.keys.quota("q")).Result(); err != nil || n > 120_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	now += 2 * 3600 * second
	if w := l.Peek(now, c.Quotas)[0]; w.Remaining != 2*used {
		t.Errorf("%+v", w)
	}
}

// TestALogForgetsWhatCameBack: units that are granted and handed back leave nothing in the list of a log.
func TestALogForgetsWhatCameBack(t *testing.T) {
	testservices.Simulation(t)
	m, client := miniClient(t)
	l := newLua(t, client)
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{
		{Span: 31 * 24 * time.Hour, Limit: 10, Algorithm: delivery.AlgorithmLog},
	}}
	c := campaign(1000, q)
	now := settle(l, epoch, c)
	take1(l, now, "a", ask(c, 1)) // one is sent
	size := func() int {
		v, err := m.Get(newKeys(l.prefix, 0).quota("q"))
		must(t, err)
		return len(v)
	}
	before := size()
	for round := range 200 {
		var grants []delivery.Grant
		for range 3 {
			now += second
			g := take1(l, now, "a", ask(c, 1))
			if g.Units != 1 {
				t.Fatal(round, g)
			}
			grants = append(grants, g.Grant())
		}
		now += second
		l.Refund(now, [][]delivery.Grant{
			{grants[2], grants[1], grants[0]}, {grants[0], grants[1], grants[2]}, {grants[1], grants[0], grants[2]},
		}[round%3])
	}
	if n := size(); n > before+100 {
		t.Errorf("a log of one unit takes %d bytes, %d at first", n, before)
	}
	if w := l.Peek(now, c.Quotas)[0]; w.Remaining != 9 {
		t.Errorf("%+v", w)
	}
}

// TestKeysLiveLongEnough: with its key a timeline loses its last slot, and the credit of a burst. Redis expires keys by its clock: until a jump of
// that is noticed, no count may go.
func TestKeysLiveLongEnough(t *testing.T) {
	client := realClient(t)
	l, now := newLua(t, client), epoch
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(5, time.Millisecond)}
	for i, tc := range []struct {
		rate  delivery.Rate
		burst int64
		least time.Duration
	}{
		{delivery.PerSecond(1000), 0, 48*time.Hour - time.Minute},
		{delivery.Rate{N: 1, Per: 24 * 3600 * second}, 0, 72 * time.Hour},
		{delivery.PerSecond(1000), 100, 30 * 24 * time.Hour},
	} {
		c := campaign(1, q)
		c.Revision, c.Rate, c.Burst = int64(i+1), tc.rate, tc.burst
		take1(l, now, "a", ask(c, 1))
		now += 60 * second
		if d := client.PTTL(t.Context(), l.engine("a").shards[0].keys.timeline(c.ID)).Val(); d < tc.least {
			t.Errorf("%+v: the timeline lives for %s", tc, d)
		}
	}
	if d := client.PTTL(t.Context(), l.engine("a").shards[0].keys.quota(q.ID)).Val(); d < 48*time.Hour-time.Minute {
		t.Errorf("the quota lives for %s", d)
	}
}
