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
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/testservices"
)

// TestCrashesDoNotInflateTheLedger: five daemons, one after the other, send at 1,000/s and are killed. What they had reserved and
// not used is no use, a few minutes later: neither where each lives for long, nor where all are dead before a minute is over.
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
	calendar := &delivery.Quota{ID: "q", Windows: windows(1000, time.Hour)}
	calendar.Windows[0].Algorithm, calendar.Windows[0].Anchor = delivery.AlgorithmFixed, "hour@UTC"
	seen := delivery.Checkpoint{Epoch: 7, At: 10*hour + 20*second, Window: "1h0m0s sliding", Born: 10*hour - 30*minute, Counted: 100}
	at := seen.At - seen.At%bucketWidth(time.Hour) // when its bucket began
	young := seen
	young.Born = at
	quiet := seen // nothing was used lately
	quiet.Counted = 0
	in := func(c delivery.Checkpoint, window string) delivery.Checkpoint {
		c.Window = window
		return c
	}
	fixed := in(seen, "1h0m0s fixed until 38000000000")
	for name, tc := range map[string]struct {
		last     delivery.Checkpoint
		now      Counted
		returned int64
		epoch    int64
		later    int64
		want     bool
	}{
		"as it was":                            {seen, Counted{"sliding", seen.Born, 120, 9}, 0, 7, minute, false},
		"gone":                                 {seen, Counted{}, 0, 7, minute, true},
		"gone, a part may have left":           {seen, Counted{}, 0, 7, 31 * minute, true},
		"made anew":                            {seen, Counted{"sliding", seen.Born + 40*minute, 20, 9}, 0, 7, minute, true},
		"anew, a part may have left":           {seen, Counted{"sliding", 10*hour + minute, 20, 9}, 0, 7, 31 * minute, true},
		"anew in the same part":                {young, Counted{"sliding", young.Born, 20, 20}, 0, 7, minute, true},
		"anew, where older parts were":         {seen, Counted{"sliding", at, 120, 20}, 0, 7, minute, true},
		"units were given back":                {seen, Counted{"sliding", seen.Born, 90, 0}, 0, 7, minute, false},
		"all of the newest were given back":    {seen, Counted{"sliding", seen.Born, 0, 0}, 0, 7, minute, false},
		"those of the oldest were given back":  {seen, Counted{"sliding", seen.Born + minute, 120, 0}, 0, 7, minute, false},
		"only some of the middle remain":       {seen, Counted{"sliding", 10*hour - minute, 5, 5}, 0, 7, minute, false},
		"all were given back":                  {seen, Counted{"sliding", 0, 0, 0}, 0, 7, minute, false},
		"all, and nothing was used lately":     {quiet, Counted{"sliding", 0, 0, 0}, 0, 7, minute, false},
		"nothing was used lately, made anew":   {quiet, Counted{"sliding", 10*hour + minute, 5, 5}, 0, 7, minute, true},
		"given back here":                      {young, Counted{"sliding", young.Born, 20, 0}, 80, 7, minute, false},
		"given back here, and used anew":       {young, Counted{"sliding", 10*hour + minute, 5, 5}, 100, 7, minute, false},
		"nearly all given back, and lost":      {young, Counted{"sliding", 10*hour + minute, 5, 5}, 99, 7, minute, true},
		"it has expired":                       {seen, Counted{}, 0, 7, 61 * minute, false},
		"the older parts have expired":         {seen, Counted{"sliding", at, 120, 9}, 0, 7, 31 * minute, false},
		"lost and rebuilt":                     {seen, Counted{}, 0, 8, minute, false},
		"another algorithm":                    {seen, Counted{"log", seen.Born + 5, 20, 9}, 0, 7, minute, false},
		"another window":                       {in(seen, "24h0m0s sliding"), Counted{}, 0, 7, minute, false},
		"a log of which units were given back": {in(seen, "1h0m0s log"), Counted{"log", 10 * hour, 0, 0}, 0, 7, minute, false},
		"a log, made anew":                     {in(seen, "1h0m0s log"), Counted{"log", seen.At + 1, 500, 0}, 0, 7, minute, true},
		"fixed, as it was":                     {fixed, Counted{"fixed until 38000000000", seen.Born, 120, 120}, 0, 7, minute, false},
		"fixed, given back":                    {fixed, Counted{"fixed until 38000000000", seen.Born, 0, 0}, 0, 7, minute, false},
		"fixed, begun anew":                    {fixed, Counted{"fixed until 39000000000", seen.Born + 40*minute, 300, 300}, 0, 7, minute, true},
		"fixed, after its reset":               {fixed, Counted{"fixed until 39000000000", seen.Born + hour, 3, 3}, 0, 7, 31 * minute, false},
	} {
		if got := vanished(&tc.last, &Counting{Quota: q}, &tc.now, tc.returned, tc.epoch, seen.At+tc.later); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if next, ok := nextCheckpoint(&quiet, &Counting{Quota: q}, &Counted{Form: "sliding"}, 7, seen.At+minute); ok {
		t.Errorf("an empty window is believed: %+v", next)
	}
	for _, tc := range []struct {
		units, returned int64
		want            bool
	}{{120, 0, false}, {10, 90, false}, {10, 0, true}} {
		c := Counted{"fixed until 38000000000", seen.Born, tc.units, tc.units}
		if got := vanished(&fixed, &Counting{Quota: calendar}, &c, tc.returned, 7, seen.At+minute); got != tc.want {
			t.Errorf("in the calendar's period, %+v: %v", tc, got)
		}
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
