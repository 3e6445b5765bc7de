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
	"github.com/pacer/pacer/internal/testservices"
)

// TestCrashesDoNotInflateTheLedger: five daemons, one after the other, send at 1,000/s and are killed. A few minutes later, their unused
// reservations do not count as use. This holds if each lives for long, and if all are dead before a minute is over.
func TestCrashesDoNotInflateTheLedger(t *testing.T) {
	testservices.Simulation(t)
	t.Run("after 150 s each", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { crashes(t, 0, 5*time.Second, 150) }) })
	t.Run("in the first minute", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { crashes(t, 0, time.Second, 6) }) })
	t.Run("across a minute's end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { crashes(t, 40*time.Second, time.Second, 6) })
	})
}

// crashes begins at a place in a minute. Each daemon sends for some seconds, a moment after it started.
func crashes(t *testing.T, begin, starting time.Duration, seconds int) {
	const perMinute = 60_000
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + begin)))
	l, s := newMemLedger(), newMemStore()
	quotas := []*delivery.Quota{{ID: "q", Revision: 1, Windows: windows(100_000_000, 30*24*time.Hour)}}
	used := int64(0)
	for life := range 5 {
		d := newGuarded(fmt.Sprint("life", life), l, s, quotas)
		time.Sleep(starting)
		for range seconds * 20 {
			n, _, _ := d.take(context.Background(), s, quotas[0], 50)
			used += n
			time.Sleep(50 * time.Millisecond)
		}
		l.fail(errors.New("killed")) // nothing is given back
		d.stop()
		l.fail(nil)
	}
	if n := l.total("q"); n < used {
		t.Errorf("right after the crashes %d used, %d in the ledger", used, n)
	}
	d := newGuarded("last", l, s, quotas) // it sends nothing
	defer d.stop()
	time.Sleep(6 * time.Minute)
	if n := l.total("q"); n < used || n > used+min(used/10, perMinute) {
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
}

// TestWhenACountNeedsNoComparison: only where the ledger knows of no use of the quota before a moment ago, nor of other data.
func TestWhenACountNeedsNoComparison(t *testing.T) {
	const minute, epoch = ledgerMinute, 7
	first := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMicro() / minute
	for name, tc := range map[string]struct {
		last   delivery.Checkpoint
		later  int64 // seconds after the first minute's beginning
		anchor string
		want   bool
	}{
		"the first use":                      {delivery.Checkpoint{}, 61, "", true},
		"within the minute":                  {delivery.Checkpoint{}, 3, "", true},
		"too late":                           {delivery.Checkpoint{}, 121, "", false},
		"used long ago":                      {delivery.Checkpoint{Rows: delivery.LedgerRows{Before: first - 70}}, 61, "", true},
		"used in the span":                   {delivery.Checkpoint{Rows: delivery.LedgerRows{Before: first - 50}}, 61, "", false},
		"used a span ago, as far as is told": {delivery.Checkpoint{Rows: delivery.LedgerRows{Before: first - 60}}, 61, "", false},
		"compared already":                   {delivery.Checkpoint{Epoch: epoch, At: first*minute + second, Window: "1h0m0s sliding"}, 61, "", false},
		"compared long ago":                  {delivery.Checkpoint{Epoch: epoch, At: (first - 61) * minute, Window: "1h0m0s sliding"}, 61, "", true},
		"other data was compared":            {delivery.Checkpoint{Epoch: 5, At: first * minute, Window: "1h0m0s sliding"}, 61, "", true},
		"other data was used":                {delivery.Checkpoint{Rows: delivery.LedgerRows{Epoch: 5}}, 61, "", false},
		"in the calendar's period":           {delivery.Checkpoint{}, 61, "hour@UTC", true},
		"a new period has begun since":       {delivery.Checkpoint{Rows: delivery.LedgerRows{First: first - 1}}, 3, "hour@UTC", false},
	} {
		q := &delivery.Quota{ID: "q", Windows: windows(1000, time.Hour)}
		counted := Counted{Form: "sliding", Born: first * minute, Since: 40, Newest: 4}
		if tc.anchor != "" {
			q.Windows[0].Algorithm, q.Windows[0].Anchor = delivery.AlgorithmFixed, tc.anchor
			counted.Form = "fixed until 1"
		}
		last, of, now := tc.last, Counting{Quota: q}, first*minute+tc.later*second
		if last.Rows.First == 0 {
			last.Rows.First = first
		}
		if last.Rows.Epoch == 0 {
			last.Rows.Epoch = epoch
		}
		of.All = begins(&last, &of, epoch, now)
		next, ok := nextCheckpoint(&last, &of, &counted, epoch, now)
		if got := ok && next.Used == 40 && next.Begun == last.Rows.First; got != tc.want {
			t.Errorf("%s: %+v, %t", name, next, ok)
		}
	}
}

func TestPruningKeepsTheLongestWindow(t *testing.T) {
	testservices.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ span, kept time.Duration }{
			{time.Hour, 31 * 24 * time.Hour}, {31 * 24 * time.Hour, 32 * 24 * time.Hour}, {model.MaxSpan, 367 * 24 * time.Hour},
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
