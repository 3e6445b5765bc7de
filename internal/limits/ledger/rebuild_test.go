package ledger

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

func TestRebuildWindow(t *testing.T) {
	now := epoch + 17*second
	m := now / ledgerMinute
	at := func(minutesAgo, units int64) Dated {
		return Dated{dateOf(m-minutesAgo, now, delivery.Incarnation{}), units}
	}
	end := func(minutesAgo int64) int64 { return (m-minutesAgo+1)*ledgerMinute + clockSlack }
	fixed := func(span time.Duration, anchor string) delivery.Window {
		return delivery.Window{Span: span, Limit: 100, Algorithm: delivery.AlgorithmFixed, Anchor: anchor}
	}
	hour, minute := time.Hour.Microseconds(), time.Minute.Microseconds()
	day := time.UnixMicro(now).UTC().Truncate(24 * time.Hour).UnixMicro()
	for _, tc := range []struct {
		name   string
		window delivery.Window
		usage  []Dated
		anchor int64
		want   Window
	}{
		{"short", windows(7, 2*time.Minute)[0], []Dated{at(0, 1)}, 0, Window{Units: []Dated{{now, 7}}}},
		{"short, nothing allowed", windows(0, time.Minute)[0], nil, 0, Window{}},
		{"short, fixed", fixed(time.Minute, ""), nil, 0, Window{[]Dated{{now, 100}}, now + minute}},
		{"short, calendar", fixed(time.Minute, "minute"), nil, 0, Window{[]Dated{{now, 100}}, (m + 1) * minute}},
		{"sliding, unused", windows(7, time.Hour)[0], nil, 0, Window{}},
		{
			"sliding", windows(700, time.Hour)[0], []Dated{at(70, 9), at(30, 1), at(2, 2), at(0, 3), at(-3, 4)}, 0,
			Window{Units: []Dated{{end(30), 1}, {end(2), 2}, {now, 7}}},
		},
		{
			"log", delivery.Window{Span: time.Hour, Limit: 9, Algorithm: delivery.AlgorithmLog}, []Dated{at(30, 1)}, 0,
			Window{Units: []Dated{{end(30), 1}}},
		},
		{
			"fixed, open", fixed(time.Hour, ""), []Dated{at(50, 9), at(10, 1), at(0, 2)}, now + hour/2,
			Window{[]Dated{{now, 3}}, now + hour/2},
		},
		{"fixed, open, unused", fixed(time.Hour, ""), []Dated{at(50, 9)}, now + hour/2, Window{}},
		{
			"fixed, over", fixed(time.Hour, ""), []Dated{at(40, 9), at(10, 1)}, now - hour/2,
			Window{[]Dated{{end(10), 1}}, end(10) + hour},
		},
		{
			"fixed, unknown", fixed(time.Hour, ""), []Dated{at(80, 5), at(40, 9), at(10, 1)}, 0,
			Window{[]Dated{{end(10), 10}}, end(10) + hour},
		},
		{
			"calendar", fixed(24*time.Hour, "day"), []Dated{at((now-day)/minute+2, 9), at((now-day)/minute, 1), at(3, 2)}, 0,
			Window{[]Dated{{end(3), 3}}, day + 24*hour},
		},
	} {
		if got := rebuildWindow(tc.window, tc.usage, tc.anchor, now); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v (now %d)", tc.name, got, tc.want, now)
		}
	}
}

// TestARebuiltSlidingWindowNeverHoldsLess compares what is left of a rebuilt window with what was used, at any later
// time.
func TestARebuiltSlidingWindowNeverHoldsLess(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		span := rapid.SampledFrom([]time.Duration{3 * time.Minute, time.Hour, 30 * 24 * time.Hour}).Draw(rt, "span")
		now := epoch + rapid.Int64Range(0, 10*ledgerMinute).Draw(rt, "now")
		used := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Dated {
			ago := rapid.Int64Range(0, 2*span.Microseconds()).Draw(t, "ago")
			return Dated{now - ago, rapid.Int64Range(1, 9).Draw(t, "units")}
		}), 0, 50).Draw(rt, "used")
		first, minutes := now/ledgerMinute, map[int64]int64{}
		for _, u := range used {
			minutes[u.At/ledgerMinute] += u.Units
			first = min(first, u.At/ledgerMinute)
		}
		var usage []Dated
		for m := first; m <= now/ledgerMinute; m++ {
			if minutes[m] > 0 {
				usage = append(usage, Dated{dateOf(m, now, delivery.Incarnation{}), minutes[m]})
			}
		}
		got := rebuildWindow(delivery.Window{Span: span, Limit: 100}, usage, 0, now)
		if len(got.Units) > 70 {
			rt.Fatalf("%d buckets", len(got.Units))
		}
		count := func(list []Dated, since int64) (n int64) {
			for _, u := range list {
				if u.At > since {
					n += u.Units
				}
			}
			return n
		}
		for _, u := range append(used, Dated{At: now}, Dated{At: now - span.Microseconds()}) {
			if later := u.At; later >= now-span.Microseconds() && count(got.Units, later) < count(used, later) {
				rt.Fatalf("when %d has left: %d restored, %d used", later, count(got.Units, later), count(used, later))
			}
		}
	})
}

// slowLedger takes a while to read the usage.
type slowLedger struct {
	*memLedger
	takes time.Duration
}

func (l slowLedger) Usage(ctx context.Context, quotas []string, since int64) ([]delivery.Usage, error) {
	time.Sleep(l.takes)
	return l.memLedger.Usage(ctx, quotas, since)
}

// TestALongRebuildIsDoneOnce: others wait for the daemon that has begun it, however long it takes.
func TestALongRebuildIsDoneOnce(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Second, 15 * time.Second, 25 * time.Second} {
		for _, daemons := range []int{1, 3, 10} {
			synctest.Test(t, func(t *testing.T) {
				l, s, q := slowLedger{newMemLedger(), takes}, newMemStore(), daily()
				var all []*guarded
				for i := range daemons {
					all = append(all, newGuarded(fmt.Sprint(i), l, s, []*delivery.Quota{q}))
				}
				time.Sleep(10 * time.Second)
				s.flushAll()
				began := time.Now()
				for _, d := range all { // each is told by its next script
					n, _ := d.Epoch(0)
					d.Lost(0, n, false)
				}
				open := func() bool {
					return !slices.ContainsFunc(all, func(d *guarded) bool {
						n, ok := d.Epoch(0)
						return !ok || n != l.Recorded()
					})
				}
				for !open() && time.Since(began) < time.Hour {
					time.Sleep(50 * time.Millisecond)
				}
				if took := time.Since(began); took > takes+2*time.Second {
					t.Errorf("%d daemons: %s for a rebuild of %s", daemons, took, takes)
				}
				for _, d := range all {
					d.stop()
				}
			})
		}
	}
}

// unheard is a ledger that records an epoch, and whose answer is lost, once lost comes down to 0.
type unheard struct {
	slowLedger
	lost *atomic.Int32
}

func (l unheard) ReplaceEpoch(ctx context.Context, shard int, old int64, next delivery.Incarnation, cause string) (int64, error) {
	n, err := l.slowLedger.ReplaceEpoch(ctx, shard, old, next, cause)
	if l.lost.Add(-1) == 0 {
		return 0, errCrashed
	}
	return n, err
}

// TestALostAnswerDoesNotProlongARebuild: a daemon does not take its own record for that of another one, which it would wait for.
func TestALostAnswerDoesNotProlongARebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 4 * time.Second
		l, s, q := unheard{slowLedger{newMemLedger(), takes}, &atomic.Int32{}}, newMemStore(), daily()
		d := newGuarded("n", l, s, []*delivery.Quota{q})
		defer d.stop()
		time.Sleep(10 * time.Second)
		l.lost.Store(2) // the loss is recorded, and then the record is renewed
		s.flushAll()
		began := time.Now()
		d.Lost(0, l.Recorded(), false)
		for open := false; !open && time.Since(began) < time.Minute; _, open = d.Epoch(0) {
			time.Sleep(50 * time.Millisecond)
		}
		if took := time.Since(began); took > takes+2*time.Second {
			t.Errorf("%s for a rebuild of %s: %s", took, takes, d.log)
		}
	})
}
