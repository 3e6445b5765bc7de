package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
	"github.com/pacer/pacer/internal/limits/model"
)

// TestCrashesDoNotInflateTheLedger: five daemons, one after the other, send at 1,000/s and are killed after 150 s each.
// What they had reserved and not used is no use, a few minutes later.
func TestCrashesDoNotInflateTheLedger(t *testing.T) {
	harness.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		const perMinute = 60_000
		l, s := newMemLedger(), newMemStore()
		quotas := []*delivery.Quota{{ID: "q", Revision: 1, Windows: windows(100_000_000, 30*24*time.Hour)}}
		used := int64(0)
		live := func(life, seconds int) {
			d := newGuarded(fmt.Sprint("life", life), l, s, quotas)
			time.Sleep(5 * time.Second)
			for range seconds * 20 {
				n, _, _ := d.take(context.Background(), s, quotas[0], 50)
				used += n
				time.Sleep(50 * time.Millisecond)
			}
			l.fail(errors.New("killed")) // nothing is given back
			d.stop()
			l.fail(nil)
		}
		for life := range 5 {
			live(life, 150)
		}
		if n := l.total("q"); n < used {
			t.Errorf("right after the crashes %d used, %d in the ledger", used, n)
		}
		d := newGuarded("last", l, s, quotas) // it sends nothing
		time.Sleep(6 * time.Minute)
		if n := l.total("q"); n < used || n > used+perMinute {
			t.Errorf("%d used, %d in the ledger", used, n)
		}
		s.flushAll()
		used += d.takeAll(s, quotas[0], 15*time.Second)
		sum := int64(0)
		s.change(func() {
			for _, u := range s.data.windows["q"][30*24*time.Hour] {
				sum += u.Units
			}
		})
		if sum < used || sum > used+perMinute {
			t.Errorf("%d used, %d after the store has lost its data", used, sum)
		}
		d.stop()
	})
}

// TestAnEvictedKeyIsNoticed: within a minute, and then counts as used what the ledger knows.
func TestAnEvictedKeyIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newMemLedger(), newMemStore()
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100_000, 24*time.Hour)}
		d := newGuarded("n", l, s, []*delivery.Quota{q})
		defer d.stop()
		used := int64(0)
		for range 4 {
			used += d.takeAll(s, q, 3*time.Minute)
			s.change(func() { delete(s.data.windows, "q") })
		}
		used += d.takeAll(s, q, 20*time.Minute)
		if used < 90_000 || used > 100_000+4*61_000 { // it is looked for once a minute, and takes up to a second
			t.Errorf("%d of 100,000 used", used)
		}
		if n := strings.Count(d.log.String(), "counts are gone from the store"); n != 4 {
			t.Errorf("noticed %d times of 4: %s", n, d.log)
		}
	})
}

func TestWhatHasVanished(t *testing.T) {
	const minute, hour = ledgerMinute, 60 * ledgerMinute
	q := &delivery.Quota{ID: "q", Windows: windows(1000, time.Hour)}
	seen := delivery.Checkpoint{Epoch: 7, At: 10 * hour, Window: "1h0m0s sliding", Born: 10*hour - 30*minute, Counted: 100}
	for name, tc := range map[string]struct {
		window string
		now    Counted
		epoch  int64
		later  int64
		want   bool
	}{
		"as it was":              {"", Counted{"sliding", seen.Born, 120, 9}, 7, minute, false},
		"gone":                   {"", Counted{}, 7, minute, true},
		"made anew":              {"", Counted{"sliding", seen.Born + 40*minute, 20, 9}, 7, minute, true},
		"anew in the same part":  {"", Counted{"sliding", seen.Born, 20, 20}, 7, minute, true},
		"units were given back":  {"", Counted{"sliding", seen.Born, 90, 0}, 7, minute, false},
		"it has expired":         {"", Counted{}, 7, 31 * minute, false},
		"lost and rebuilt":       {"", Counted{}, 8, minute, false},
		"another algorithm":      {"", Counted{"log", seen.Born + 5, 20, 9}, 7, minute, false},
		"another window":         {"24h0m0s sliding", Counted{}, 7, minute, false},
		"fixed, as it was":       {"1h0m0s fixed until 38000000000", Counted{"fixed until 38000000000", seen.Born, 120, 120}, 7, minute, false},
		"fixed, begun anew":      {"1h0m0s fixed until 38000000000", Counted{"fixed until 39000000000", seen.Born + 40*minute, 3, 3}, 7, minute, true},
		"fixed, after its reset": {"1h0m0s fixed until 38000000000", Counted{"fixed until 39000000000", seen.Born + hour, 3, 3}, 7, 31 * minute, false},
	} {
		last := seen
		if tc.window != "" {
			last.Window = tc.window
		}
		if got := vanished(&last, &Counting{Quota: q}, &tc.now, tc.epoch, seen.At+tc.later); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPruningKeepsTheLongestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ span, kept time.Duration }{
			{30 * 24 * time.Hour, 31 * 24 * time.Hour}, {model.MaxSpan, 367 * 24 * time.Hour},
		} {
			q := &delivery.Quota{ID: "q", Windows: windows(10, tc.span, 1, time.Minute)}
			l := newMemLedger()
			d := newGuarded("n", l, newMemStore(), []*delivery.Quota{q})
			time.Sleep(3*time.Hour + time.Minute)
			d.stop()
			if n := len(l.pruned); n < 3 || n > 4 {
				t.Errorf("pruned %d times in three hours", n)
			}
			if last := l.pruned[len(l.pruned)-1]; minuteNow()-last < int64(tc.kept/time.Minute) ||
				minuteNow()-last > int64((tc.kept+2*time.Hour)/time.Minute) {
				t.Errorf("%v: pruned before %d minutes ago", tc.span, minuteNow()-last)
			}
		}
	})
}
