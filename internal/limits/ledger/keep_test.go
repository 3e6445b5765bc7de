package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// TestCrashesDoNotInflateTheLedger: five daemons, one after the other, send at 1,000/s and are killed after 150 s each.
// What they had reserved and not used is no use, a few minutes later.
func TestCrashesDoNotInflateTheLedger(t *testing.T) {
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
