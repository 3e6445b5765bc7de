package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestCrashesDoNotInflateTheLedger: five daemons, one after the other, send at 1,000/s and are killed. The ledger lacks at most two seconds of
// that at any time, and nothing once another daemon has written it. This holds if each lives for long, and if all are dead before a minute is over.
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
	const perSecond = 1000
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
		d.kill()
	}
	if n := l.Total("q"); n < used-2*perSecond || n > used {
		t.Errorf("right after the crashes %d used, %d in the ledger", used, n)
	}
	d := newGuarded("last", l, s, quotas) // it sends nothing
	defer d.stop()
	time.Sleep(6 * time.Minute)
	if n := l.Total("q"); n != used {
		t.Errorf("%d used, %d in the ledger", used, n)
	}
	s.flushAll()
	used += d.takeAll(s, quotas[0], 15*time.Second)
	sum := int64(0)
	s.Change(func() {
		for _, u := range s.data.windows["q"][30*24*time.Hour] {
			sum += u.Units
		}
	})
	if sum != used {
		t.Errorf("%d used, %d after the store has lost its data", used, sum)
	}
}

// halfDown is a store of two shards, the first of which does not answer.
type halfDown struct{ *memStore }

func (s halfDown) Count(ctx context.Context, shard int, epoch int64, list []*delivery.Quota) (int64, []Counted, error) {
	if shard == 0 {
		return 0, nil, errors.New("down")
	}
	return s.memStore.Count(ctx, shard, epoch, list)
}

// hanging is a store whose counts never come.
type hanging struct{ *memStore }

func (s hanging) Count(ctx context.Context, _ int, _ int64, _ []*delivery.Quota) (int64, []Counted, error) {
	<-ctx.Done()
	return 0, nil, ctx.Err()
}

// TestAStoreThatHangsIsLogged: also if it is the write that gives up.
func TestAStoreThatHangsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newGuarded("n", newMemLedger(), hanging{newMemStore()}, []*delivery.Quota{daily()})
		defer d.stop()
		time.Sleep(20 * time.Second)
		if n := strings.Count(d.log.String(), "is not in the ledger"); n != 1 {
			t.Errorf("%d lines:\n%s", n, d.log)
		}
	})
}

// TestAShardThatIsDownIsLoggedOnce, though what others have counted is written.
func TestAShardThatIsDownIsLoggedOnce(t *testing.T) {
	l, s, log := newMemLedger(), newMemStore(), &journal{}
	s.data.epoch = 7
	for shard := range 2 {
		l.Epochs[shard], l.Causes[shard] = delivery.Incarnation{Epoch: 7}, []string{delivery.CauseFirst}
	}
	quotas := []*delivery.Quota{{ID: "a", Windows: windows(10, time.Hour)}, {ID: "b", Shard: 1, Windows: windows(10, time.Hour)}}
	g := NewFence(Options{
		Records: l, Node: "n", Quotas: func() []*delivery.Quota { return quotas }, Now: storeNow, Shards: 2,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	}, halfDown{s})
	w := &writer{Fence: g, books: make([]book, 2)}
	for range 5 {
		if w.write(t.Context(), 0, 7) || !w.write(t.Context(), 1, 7) {
			t.Error("not only the second shard is written")
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}
