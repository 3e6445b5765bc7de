package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/testservices"
)

// memStore is one shard with exact windows. As in the real one, an epoch is good only for the process that adopted it. A restore of
// several quotas takes several steps. A call that was given up may still have been done.
type memStore struct {
	limitstest.Caller
	data    memData // under mu, as is process
	process int
}

type memData struct {
	epoch      int64
	adopted    int   // the process
	restoring  int64 // the epoch whose restore began last
	restoredIn int   // the process
	windows    map[string]map[time.Duration][]Dated
	restores   map[int64]int // parts put in place under each epoch
	counted    map[string]Counted
}

func newMemStore() *memStore {
	return &memStore{data: emptyData()}
}

func emptyData() memData {
	return memData{windows: map[string]map[time.Duration][]Dated{}, restores: map[int64]int{}, counted: map[string]Counted{}}
}

func (d memData) clone() memData {
	c := emptyData()
	c.epoch, c.adopted = d.epoch, d.adopted
	c.restoring, c.restoredIn = d.restoring, d.restoredIn
	maps.Copy(c.counted, d.counted)
	for q, windows := range d.windows {
		c.windows[q] = map[time.Duration][]Dated{}
		for span, list := range windows {
			c.windows[q][span] = append([]Dated(nil), list...)
		}
	}
	return c
}

// inForce is the epoch that scripts are compared with.
func (s *memStore) inForce() int64 {
	if s.data.adopted != s.process {
		return 0
	}
	return s.data.epoch
}

// held is the same, for a test to look at.
func (s *memStore) held() (n int64) {
	s.Change(func() { n = s.inForce() })
	return n
}

func (s *memStore) Inspect(ctx context.Context, _ int) (found Found, err error) {
	err = s.Call(ctx, func() error {
		found = Found{Epoch: s.inForce(), Now: time.Now().UnixMicro()}
		return nil
	})
	return found, err
}

func (s *memStore) Retire(ctx context.Context, _ int, epoch int64) error {
	return s.Call(ctx, func() error {
		if s.data.epoch == epoch {
			s.data.epoch = 0
		}
		return nil
	})
}

func (s *memStore) Restore(ctx context.Context, _ int, epoch int64, quotas []Restored) error {
	part := func(first bool, what func()) error {
		return s.Call(ctx, func() error {
			if first {
				s.data.restoring, s.data.restoredIn = epoch, s.process
			}
			if s.inForce() != 0 || s.data.restoring != epoch || s.data.restoredIn != s.process {
				return ErrEpoch
			}
			what()
			return nil
		})
	}
	for i, q := range quotas {
		err := part(i == 0, func() {
			windows := map[time.Duration][]Dated{}
			for i, w := range q.Windows {
				windows[q.Quota.Windows[i].Span] = append([]Dated(nil), w.Units...)
			}
			s.data.windows[q.Quota.ID], s.data.counted[q.Quota.ID] = windows, Counted{Taken: delivery.Taken{Born: time.Now().UnixMicro()}}
			s.data.restores[epoch]++
		})
		if err != nil {
			return err
		}
	}
	return part(len(quotas) == 0, func() { s.data.epoch, s.data.adopted = epoch, s.process })
}

func (s *memStore) Count(ctx context.Context, _ int, epoch int64, list []*delivery.Quota) (now int64, counted []Counted, err error) {
	err = s.Call(ctx, func() error {
		if epoch != s.inForce() {
			return ErrEpoch
		}
		now = time.Now().UnixMicro()
		for _, q := range list {
			c := s.data.counted[q.ID]
			c.Quota, c.Windows = q.ID, nil
			for _, w := range q.Windows {
				of := CountedWindow{Since: now - w.Span.Microseconds()}
				for _, u := range s.data.windows[q.ID][w.Span] {
					if u.At > of.Since {
						of.Units += u.Units
					}
				}
				c.Windows = append(c.Windows, of)
			}
			counted = append(counted, c)
		}
		return nil
	})
	return now, counted, err
}

// take grants what fits into all windows.
func (s *memStore) take(
	ctx context.Context, epoch int64, q *delivery.Quota, want int64,
) (n, at int64, err error) {
	err = s.Call(ctx, func() error {
		if epoch != s.inForce() {
			return ErrEpoch
		}
		at, n = time.Now().UnixMicro(), want
		windows := s.data.windows[q.ID]
		if windows == nil {
			windows = map[time.Duration][]Dated{}
			s.data.windows[q.ID] = windows
		}
		for _, w := range q.Windows {
			room := w.Limit
			windows[w.Span] = slices.DeleteFunc(windows[w.Span], func(u Dated) bool { return u.At <= at-w.Span.Microseconds() })
			for _, u := range windows[w.Span] {
				room -= u.Units
			}
			n = max(0, min(n, room))
		}
		for _, w := range q.Windows {
			if n == 0 {
				break
			}
			windows[w.Span] = append(windows[w.Span], Dated{at, n})
		}
		c := s.data.counted[q.ID]
		if c.Born == 0 {
			c.Born = at
		}
		c.Units += n
		s.data.counted[q.ID] = c
		return nil
	})
	return n, at, err
}

func (s *memStore) flushAll() { s.Change(func() { s.data = emptyData() }) }

// guarded is a fence and a writer at work, in a bubble.
type guarded struct {
	*Fence
	log  *journal
	reg  *prometheus.Registry
	dead atomic.Bool // the ledger cannot be written by it
	stop func()
	kill func() // stop without a word
}

// horizon is how far ahead the daemons of these tests ask for slots.
const horizon = 75 * time.Millisecond

func newGuarded(node string, l Database, s Store, quotas []*delivery.Quota) *guarded {
	return newRated(node, l, s, quotas, nil)
}

// newRated is one whose campaigns have rates.
func newRated(node string, l Database, s Store, quotas []*delivery.Quota, rates func(time.Duration) map[string]int64) *guarded {
	d := &guarded{log: &journal{}, reg: prometheus.NewRegistry()}
	o := Options{
		Records: &mortal{l, &d.dead}, Node: node, Quotas: func() []*delivery.Quota { return quotas }, Rates: rates, Now: storeNow, Shards: 1,
		Horizon: func() time.Duration { return horizon },
		Logger:  slog.New(slog.NewTextHandler(d.log, nil)), Registerer: d.reg,
	}
	d.Fence = NewFence(o, s)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Fence.Run(ctx) })
	d.stop = func() { cancel(); running.Wait() }
	d.kill = func() { d.dead.Store(true); d.stop() }
	return d
}

// take asks as the engine does.
func (d *guarded) take(ctx context.Context, s *memStore, q *delivery.Quota, want int64) (n, at int64, err error) {
	epoch, ok := d.Epoch(0)
	if !ok {
		return 0, 0, ErrEpoch
	}
	quotas := []*delivery.Quota{q}
	if !d.Allows(0, quotas) {
		return 0, 0, nil
	}
	n, at, err = s.take(ctx, epoch, q, want)
	if err != nil || !d.Add(0, epoch, quotas, n, at) {
		n = 0
	}
	if errors.Is(err, ErrEpoch) {
		d.Lost(0, epoch, false)
	}
	return n, at, err
}

// mortal is a ledger that its daemon cannot write while it is cut off, or dead.
type mortal struct {
	Database
	dead *atomic.Bool
}

func (m *mortal) Leave(ctx context.Context, shard int, nodes []string, usage []delivery.Usage) error {
	if m.dead.Load() {
		return errCrashed
	}
	return m.Database.Leave(ctx, shard, nodes, usage)
}

func (m *mortal) Join(ctx context.Context, node string, as []delivery.Taker) (map[int]int64, error) {
	if m.dead.Load() {
		return nil, errCrashed
	}
	return m.Database.Join(ctx, node, as)
}

func (m *mortal) WriteTaken(ctx context.Context, shard int, epoch, since, at int64, list []delivery.Taken, anchors []delivery.Anchor) (bool, error) {
	if m.dead.Load() {
		return false, errCrashed
	}
	return m.Database.WriteTaken(ctx, shard, epoch, since, at, list, anchors)
}

// takeAll takes all that it can get within a while.
func (d *guarded) takeAll(s *memStore, q *delivery.Quota, while time.Duration) (sum int64) {
	for range while / (50 * time.Millisecond) {
		n, _, _ := d.take(context.Background(), s, q, 50)
		sum += n
		time.Sleep(50 * time.Millisecond)
	}
	return sum
}

// daily has a long and a short window.
func daily() *delivery.Quota {
	return &delivery.Quota{ID: "q", Revision: 1, Windows: windows(500, 24*time.Hour, 100, time.Minute)}
}

func TestWithoutALedgerNothingIsWatched(t *testing.T) {
	g := NewFence(Options{}, nil)
	if g != nil {
		t.Fatal(g)
	}
	g.Lost(0, 7, false)
	if n, ok := g.Epoch(0); n != 0 || !ok {
		t.Error(n, ok)
	}
	g.Run(context.Background())
}

func TestAFreshStoreGrantsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, q := newMemLedger(), newMemStore(), daily()
		s.data.windows["q"] = map[time.Duration][]Dated{24 * time.Hour: {{time.Now().UnixMicro(), 490}}} // kept from before
		d := newGuarded("a", l, s, []*delivery.Quota{q})
		defer d.stop()
		if n := d.takeAll(s, q, time.Second); n != 10 {
			t.Errorf("%d of the 10 units that are left", n)
		}
		if n, ok := d.Epoch(0); !ok || n == 0 || n != s.held() || n != l.Recorded() || n>>53 != 0 {
			t.Errorf("counts on %d, the store has %d, the ledger %d", n, s.held(), l.Recorded())
		}
		if n := testutil.ToFloat64(d.losses); n != 0 || d.log.String() != "" {
			t.Errorf("%v losses; told: %s", n, d.log)
		}
	})
}

func TestAFleetThatBeginsTellsOfNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, q := newMemLedger(), newMemStore(), []*delivery.Quota{daily()}
		all := []*guarded{newGuarded("a", l, &lateStore{s, 500 * time.Millisecond}, q)}
		time.Sleep(100 * time.Millisecond) // a has recorded its data, and puts them in place
		all = append(all, newGuarded("b", l, s, q), newGuarded("c", l, s, q))
		time.Sleep(4 * time.Second)
		for _, d := range all {
			if n, ok := d.Epoch(0); !ok || n != l.Recorded() || strings.Contains(d.log.String(), "level=WARN") {
				t.Errorf("counts on %d, the ledger on %d; told: %s", n, l.Recorded(), d.log)
			}
			d.stop()
		}
	})
}

func TestALostDayIsNotGrantedAnew(t *testing.T) {
	losses := map[string]func(s *memStore){
		"FLUSHALL":                        func(s *memStore) { s.data = emptyData() },
		"a restart without persistence":   func(s *memStore) { s.data = emptyData(); s.process++ },
		"a restart with what was on disk": func(s *memStore) { s.process++ },
		"another epoch's data":            func(s *memStore) { s.data.epoch = 1 },
	}
	for name, lose := range losses {
		synctest.Test(t, func(t *testing.T) {
			l, s, q := newMemLedger(), newMemStore(), daily()
			a, b := newGuarded("a", l, s, []*delivery.Quota{q}), newGuarded("b", l, s, []*delivery.Quota{q})
			defer a.stop()
			defer b.stop()
			before := a.takeAll(s, q, 70*time.Second) + b.takeAll(s, q, 10*time.Second)
			if before != 200 {
				t.Fatalf("%s: %d before", name, before)
			}
			time.Sleep(30 * time.Minute)
			s.Change(func() { lose(s) })
			// The short window waits a span.
			if n := a.takeAll(s, q, 59*time.Second) + b.takeAll(s, q, 500*time.Millisecond); n != 0 {
				t.Errorf("%s: %d units within a minute of the loss", name, n)
			}
			time.Sleep(5 * time.Second)
			if n := a.takeAll(s, q, 5*time.Minute); n != 300 {
				t.Errorf("%s: %d units of the day after the loss, want the 300 that were left", name, n)
			}
			record := l.Recorded()
			for _, d := range []*guarded{a, b} {
				if n, ok := d.Epoch(0); !ok || n != record && d == a {
					t.Errorf("%s: counts on %d (%v), the ledger on %d", name, n, ok, record)
				}
			}
			if n := testutil.ToFloat64(a.losses) + testutil.ToFloat64(b.losses); n != 1 {
				t.Errorf("%s: %v losses", name, n)
			}
			if log := a.log.String(); strings.Count(log, "level=WARN") != 1 || strings.Count(log, "level=INFO") != 1 {
				t.Errorf("%s: told:\n%s", name, log)
			}
		})
	}
}

// TestSlotsOfLostDataPassFirst: data that are in place within no time are not adopted before the slots of all daemons have passed. Data that
// never were are.
func TestSlotsOfLostDataPassFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, q := newMemLedger(), newMemStore(), daily()
		a, b := newGuarded("a", l, s, []*delivery.Quota{q}), newGuarded("b", l, s, []*delivery.Quota{q})
		defer a.stop()
		defer b.stop()
		for _, d := range []*guarded{a, b} {
			synctest.Wait()
			if n, _, err := d.take(t.Context(), s, q, 1); n != 1 {
				t.Fatal("a fresh store grants nothing:", err)
			}
		}
		lost := time.Now()
		s.Change(func() { s.data = emptyData() })
		for s.held() == 0 {
			for _, d := range []*guarded{a, b} {
				_, _, _ = d.take(t.Context(), s, q, 1)
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(lost); took < horizon || took > horizon+time.Second {
			t.Errorf("the data are in force %s after the loss", took)
		}
	})
}

func TestNothingIsGrantedWhileTheLedgerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, q := newMemLedger(), newMemStore(), daily()
		l.Fail(errors.New("no such host"))
		d := newGuarded("a", l, s, []*delivery.Quota{q})
		defer d.stop()
		if n := d.takeAll(s, q, 10*time.Second); n != 0 {
			t.Errorf("%d units", n)
		}
		if n := testutil.ToFloat64(d.closed); n != 1 {
			t.Errorf("%v shards recovering", n)
		}
		l.Fail(nil)
		if n := d.takeAll(s, q, 2*time.Second); n != 100 {
			t.Errorf("%d units", n)
		}
		if log := d.log.String(); strings.Count(log, "level=WARN") != 1 || strings.Count(log, "level=INFO") != 1 {
			t.Errorf("told:\n%s", log)
		}
		if n := testutil.ToFloat64(d.closed); n != 0 {
			t.Errorf("%v shards recovering", n)
		}
	})
}

func TestACatalogThatIsNotLoadedRestoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newMemLedger(), newMemStore()
		l.Epochs[0] = delivery.Incarnation{Epoch: 77}
		d := newGuarded("a", l, s, nil)
		defer d.stop()
		time.Sleep(5 * time.Second)
		if _, ok := d.Epoch(0); ok {
			t.Error("open")
		}
		if !strings.Contains(d.log.String(), "catalog is not loaded") {
			t.Errorf("told:\n%s", d.log)
		}
	})
}

// stumbler fails the k-th operation, before or after doing it, and all later ones: its daemon has crashed.
type stumbler struct {
	mu    sync.Mutex
	left  int
	after bool
}

var errCrashed = errors.New("crashed")

func (c *stumbler) step(do func() error) error {
	c.mu.Lock()
	c.left--
	left := c.left
	c.mu.Unlock()
	if left > 0 || left == 0 && c.after {
		if err := do(); err != nil {
			return err
		}
	}
	if left <= 0 {
		return errCrashed
	}
	return nil
}

func TestACrashBetweenAnyTwoStepsEndsWell(t *testing.T) {
	every := 1
	if testservices.Raced {
		every = 4
	}
	for _, fresh := range []bool{true, false} {
		for k := 1; k <= 16; k += every {
			for _, after := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					crashAt(t, fresh, k, after)
				})
			}
		}
	}
}

func crashAt(t *testing.T, fresh bool, k int, after bool) {
	t.Helper()
	l, s, q := newMemLedger(), newMemStore(), daily()
	used := int64(0)
	if !fresh {
		l.Epochs[0], s.data.epoch = delivery.Incarnation{Epoch: 77}, 55
		used = 450
		l.Used[memMinute{Node: "old", Quota: "q", Minute: time.Now().UnixMicro()/ledgerMinute - 90}] = used
	}
	c := &stumbler{left: k, after: after}
	l.Step, s.Step = c.step, c.step
	first := newGuarded("a", l, s, []*delivery.Quota{q})
	time.Sleep(time.Second)
	first.stop()
	l.Step, s.Step = nil, nil
	second := newGuarded("b", l, s, []*delivery.Quota{q})
	defer second.stop()
	began := time.Now()
	for {
		if _, ok := second.Epoch(0); ok {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("fresh %v, step %d, after %v: never opened: %s", fresh, k, after, second.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("fresh %v, step %d, after %v: took %v", fresh, k, after, took)
	}
	n, _ := second.Epoch(0)
	if n != l.Recorded() || n != s.held() {
		t.Errorf("fresh %v, step %d, after %v: counts on %d, the ledger on %d, the store has %d", fresh, k, after, n,
			l.Recorded(), s.held())
	}
	time.Sleep(2 * time.Minute)
	if n := second.takeAll(s, q, 10*time.Minute); n != 500-used {
		t.Errorf("fresh %v, step %d, after %v: %d units granted, %d are left", fresh, k, after, n, 500-used)
	}
}

func TestOneOfManyRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, q := newMemLedger(), newMemStore(), daily()
		l.Epochs[0] = delivery.Incarnation{Epoch: 77}
		var all []*guarded
		for i := range 8 {
			all = append(all, newGuarded(fmt.Sprint(i), l, s, []*delivery.Quota{q}))
		}
		s.Change(func() { s.Delay = func() time.Duration { return 5 * time.Millisecond } })
		time.Sleep(5 * time.Second)
		for _, d := range all {
			if n, ok := d.Epoch(0); !ok || n != l.Recorded() {
				t.Errorf("counts on %d, the ledger on %d", n, l.Recorded())
			}
			d.stop()
		}
		if n := s.data.restores[l.Recorded()]; n != 1 || len(l.Causes[0]) != 1 {
			t.Errorf("%d windows put in place, %d epochs recorded", n, len(l.Causes[0]))
		}
	})
}

func TestAWinnerThatDiesIsReplacedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, q := newMemLedger(), newMemStore(), daily()
		d := newGuarded("a", l, s, []*delivery.Quota{q})
		defer d.stop()
		d.takeAll(s, q, time.Second)
		s.flushAll()
		l.Change(func() { l.Epochs[0] = delivery.Incarnation{Epoch: 99} }) // somebody who is not heard of again
		d.takeAll(s, q, 4900*time.Millisecond)
		if _, ok := d.Epoch(0); ok {
			t.Error("open before its time")
		}
		time.Sleep(1400 * time.Millisecond)
		if n, ok := d.Epoch(0); !ok || n != l.Recorded() || n == 99 {
			t.Errorf("counts on %d (%v), the ledger on %d", n, ok, l.Recorded())
		}
	})
}

// TestShortWindowsWaitForAllDaemons: a daemon takes from a server that others have given up until it reads the new epoch, up to a second
// later. A short window counts as full for a span from then on, not from when the loss was found.
func TestShortWindowsWaitForAllDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, first, second := newMemLedger(), newMemStore(), newMemStore()
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(1000, time.Minute)}
		old := newGuarded("old", l, first, []*delivery.Quota{q})
		time.Sleep(time.Second)
		fresh := newGuarded("fresh", l, second, []*delivery.Quota{q})
		defer fresh.stop()
		var granted []Dated
		for heard := false; !heard; {
			n, at, err := old.take(t.Context(), first, q, 1)
			granted, heard = append(granted, Dated{at, n}), err != nil
			time.Sleep(10 * time.Millisecond)
		}
		old.stop()
		for range 2 * 60 * 100 {
			n, at, _ := fresh.take(t.Context(), second, q, 1000)
			granted = append(granted, Dated{at, n})
			time.Sleep(10 * time.Millisecond)
		}
		if granted[len(granted)-1].At == 0 {
			t.Error("nothing is granted any more:", fresh.log)
		}
		if failure := exceeded(q, slices.DeleteFunc(granted, func(g Dated) bool { return g.Units == 0 })); failure != "" {
			t.Error(failure)
		}
	})
}

// lateStore keeps the first restore on its way for a while.
type lateStore struct {
	*memStore
	way time.Duration
}

func (s *lateStore) Restore(ctx context.Context, shard int, epoch int64, quotas []Restored) error {
	way := s.way
	s.way = 0
	if err := pass(ctx, way); err != nil {
		return err
	}
	return s.memStore.Restore(ctx, shard, epoch, quotas)
}

func TestARestoreThatComesTooLateIsNotCountedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newMemLedger(), newMemStore()
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(500, 24*time.Hour)}
		l.Epochs[0] = delivery.Incarnation{Epoch: 77}
		a := newGuarded("a", l, &lateStore{s, 20 * time.Second}, []*delivery.Quota{q})
		defer a.stop()
		time.Sleep(4 * time.Second) // a has read the ledger
		b := newGuarded("b", l, s, []*delivery.Quota{q})
		if n := b.takeAll(s, q, 10*time.Second); n != 500 {
			t.Fatalf("%d by the one that overtook", n)
		}
		b.stop()
		s.flushAll()
		if n := a.takeAll(s, q, time.Minute); n != 0 {
			t.Errorf("%d units of what was used up, from a ledger read long ago", n)
		}
		if n, ok := a.Epoch(0); !ok || n != l.Recorded() || n != s.held() {
			t.Errorf("counts on %d (%v), the ledger on %d, the store has %d", n, ok, l.Recorded(), s.held())
		}
	})
}

// TestNoLossLetsALimitBeExceeded runs daemons against a store that loses its data, goes back to what it was, and is
// slow, while daemons crash and others take their place.
func TestNoLossLetsALimitBeExceeded(t *testing.T) {
	runs := 30
	if testservices.Raced {
		runs = 3
	}
	for range runs {
		seed := rand.Uint64()
		dice := rand.New(rand.NewPCG(seed, 2))
		w := &wild{
			dice: dice, slow: time.Duration(dice.IntN(400)) * time.Millisecond, daemons: 1 + dice.IntN(4),
			quotas: []*delivery.Quota{
				{ID: "p", Revision: 1, Windows: windows(dice.IntN(3000), 3*time.Minute)},
				{ID: "q", Revision: 1, Windows: windows(700, 5*time.Minute, 100, 20*time.Second)},
			},
		}
		var wrong string
		synctest.Test(t, func(*testing.T) { wrong = w.run() })
		if wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
	}
}

type wild struct {
	slow    time.Duration
	daemons int
	quotas  []*delivery.Quota
	ledger  *memLedger
	store   *memStore

	mu      sync.Mutex // guards what follows
	dice    *rand.Rand
	nodes   int
	granted map[string][]Dated
}

func (w *wild) roll(n int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dice.Int64N(n)
}

func (w *wild) run() string {
	w.ledger, w.store, w.granted = newMemLedger(), newMemStore(), map[string][]Dated{}
	w.ledger.Delay = func() time.Duration { return time.Duration(w.roll(int64(w.slow) + 1)) }
	w.store.Delay = func() time.Duration { return time.Duration(w.roll(int64(w.slow)/2 + 1)) }
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range w.daemons {
		all.Go(func() {
			for ctx.Err() == nil {
				life, end := context.WithTimeout(ctx, time.Duration(1+w.roll(int64(4*time.Minute))))
				w.daemon(life)
				end()
			}
		})
	}
	all.Go(func() { w.havoc(ctx) })
	all.Wait()
	for _, q := range w.quotas {
		if wrong := exceeded(q, w.granted[q.ID]); wrong != "" {
			return wrong
		}
	}
	return w.heals()
}

// daemon lives until ctx ends, when it crashes.
func (w *wild) daemon(ctx context.Context) {
	w.mu.Lock()
	w.nodes++
	node := fmt.Sprint(w.nodes)
	w.mu.Unlock()
	d := newGuarded(node, w.ledger, w.store, w.quotas)
	if w.roll(2) == 0 {
		defer d.kill()
	} else {
		defer d.stop()
	}
	for ctx.Err() == nil {
		q := w.quotas[w.roll(int64(len(w.quotas)))]
		call, end := context.WithTimeout(ctx, 250*time.Millisecond)
		n, at, err := d.take(call, w.store, q, 1+w.roll(60))
		end()
		if n > 0 && err == nil {
			w.mu.Lock()
			w.granted[q.ID] = append(w.granted[q.ID], Dated{at, n})
			w.mu.Unlock()
		}
		_ = retry.Sleep(ctx, time.Duration(w.roll(int64(300*time.Millisecond))))
	}
}

// havoc loses the store's data in all its ways. A process never goes back in time, but another one may take its place
// with older data, and it may come back with what it had when it was left.
func (w *wild) havoc(ctx context.Context) {
	left, replica := map[int]memData{}, emptyData()
	processes, backup := 0, (*memLedger)(nil)
	for {
		_ = retry.Sleep(ctx, time.Duration(w.roll(int64(time.Minute))))
		if ctx.Err() != nil {
			return
		}
		how, back := w.roll(8), int(w.roll(int64(processes+1)))
		switch how {
		case 6: // not amid a recovery
			_ = retry.Sleep(ctx, 15*time.Second)
			backup = w.ledger.Clone()
		case 7: // what was lost is written again within some seconds, if the store is not lost as well
			_ = retry.Sleep(ctx, 15*time.Second)
			if backup != nil {
				w.ledger.Restore(backup)
				_ = retry.Sleep(ctx, 15*time.Second)
			}
		}
		w.store.Change(func() {
			s := w.store
			if how > 1 && how < 6 {
				left[s.process] = s.data
			}
			switch how {
			case 0: // FLUSHALL
				s.data = emptyData()
			case 1: // the replica is brought up to date
				replica = s.data.clone()
			case 2: // a restart without persistence
				processes++
				s.process, s.data = processes, emptyData()
			case 3: // a restart with all that was written
				processes++
				s.process, s.data = processes, s.data.clone()
			case 4: // a failover to a replica that lags behind
				processes++
				s.process, s.data = processes, replica.clone()
			case 5: // the master of old is back
				s.process, s.data = back, left[back]
			}
		})
		if w.roll(4) == 0 {
			w.ledger.Fail(errors.New("away"))
			_ = retry.Sleep(ctx, time.Duration(w.roll(int64(20*time.Second))))
			w.ledger.Fail(nil)
		}
	}
}

// exceeded says where the quota was.
func exceeded(q *delivery.Quota, granted []Dated) string {
	slices.SortFunc(granted, func(a, b Dated) int { return int(a.At - b.At) })
	for _, w := range q.Windows {
		sum, from := int64(0), 0
		for _, g := range granted {
			sum += g.Units
			for granted[from].At <= g.At-w.Span.Microseconds() {
				sum -= granted[from].Units
				from++
			}
			if sum > w.Limit {
				return fmt.Sprintf("quota %s: %d units in %s, limit %d", q.ID, sum, w.Span, w.Limit)
			}
		}
	}
	return ""
}

// heals reports whether grants go on when all is quiet.
func (w *wild) heals() string {
	w.ledger.Fail(nil)
	d := newGuarded("last", w.ledger, w.store, w.quotas)
	defer d.stop()
	time.Sleep(40 * time.Second)
	n, ok := d.Epoch(0)
	if !ok || n != w.ledger.Recorded() || n != w.store.held() {
		return fmt.Sprintf("counts on %d (%v), the ledger on %d, the store has %d: %s", n, ok, w.ledger.Recorded(),
			w.store.held(), d.log)
	}
	time.Sleep(10 * time.Minute)
	if d.takeAll(w.store, w.quotas[1], 10*time.Second) == 0 {
		return "nothing is granted any more: " + d.log.String()
	}
	return ""
}

// TestServersThatPartAndMeet: at random times some daemons take from one server, which others have given up or never seen, and at random
// times they come together again. A daemon that reaches the ledger grants twice until it reads the new epoch. One that is cut off grants
// twice until it gives up.
func TestServersThatPartAndMeet(t *testing.T) {
	testservices.Simulation(t)
	partAndMeet := func(rt *rapid.T, first bool) {
		const perSecond, limit = 20, 100_000
		parts := rapid.SliceOfN(rapid.IntRange(1, 200), 1, 3).Draw(rt, "how long")
		cut := append([]bool{first}, rapid.SliceOfN(rapid.Bool(), 2, 2).Draw(rt, "cut off")...)
		begins := rapid.IntRange(1, 300).Draw(rt, "begins")
		used, twice, quiet := int64(0), int64(0), ""
		synctest.Test(t, func(*testing.T) {
			l, servers := newMemLedger(), []*memStore{newMemStore(), newMemStore()}
			quotas := []*delivery.Quota{{ID: "q", Revision: 1, Windows: windows(limit, 24*time.Hour)}}
			rates := func(in time.Duration) map[string]int64 {
				return map[string]int64{"q": int64(in/time.Second+1) * 2 * perSecond}
			}
			daemons := []*guarded{newRated("a", l, servers[0], quotas, rates), newRated("b", l, servers[0], quotas, rates)}
			at := []int{0, 0}
			spend := func(seconds int) {
				var both sync.WaitGroup
				var got [2]int64
				for i, d := range daemons {
					both.Go(func() {
						for range seconds {
							n, _, _ := d.take(context.Background(), servers[at[i]], quotas[0], perSecond)
							got[i] += n
							time.Sleep(time.Second)
						}
					})
				}
				both.Wait()
				used += got[0] + got[1]
			}
			spend(begins)
			for i, seconds := range parts {
				daemons[1].stop()
				at[1] = 1 - at[0]
				daemons[0].dead.Store(cut[i])
				daemons[1] = newRated(fmt.Sprint("b", i), l, servers[at[1]], quotas, rates)
				spend(seconds)
				if twice += 15 * perSecond; cut[i] {
					twice += 150 * perSecond
				}
				daemons[0].dead.Store(false)
				daemons[0].stop()
				at[0] = at[1]
				daemons[0] = newRated(fmt.Sprint("a", i), l, servers[at[0]], quotas, rates)
				spend(60)
			}
			spend(900)
			if n := daemons[1].takeAll(servers[at[1]], quotas[0], 10*time.Minute); used+n < limit/2 {
				quiet = fmt.Sprintf("only %d of %d were granted: %s", used+n, limit, daemons[1].log)
			} else {
				used += n
			}
			for _, d := range daemons {
				d.stop()
			}
		})
		if used > limit+twice {
			rt.Fatalf("%d units of %d, of which %d may be granted twice", used, limit, twice)
		}
		if quiet != "" {
			rt.Fatal(quiet)
		}
	}
	for name, first := range map[string]bool{"heard": false, "cut off": true} {
		t.Run(name, func(t *testing.T) { testservices.Few(t, 2, func(rt *rapid.T) { partAndMeet(rt, first) }) })
	}
}

// TestARestoredDatabaseMakesNothingForgotten: the ledger is one from before the store's last loss, and lacks what was used between. The
// store's counts stay in force, all of them are in the ledger again, and the next loss makes nothing forgotten.
func TestARestoredDatabaseMakesNothingForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newMemLedger(), newMemStore()
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(2500, 24*time.Hour)}
		d := newGuarded("a", l, s, []*delivery.Quota{q})
		other := newGuarded("b", l, s, []*delivery.Quota{q})
		defer d.stop()
		defer other.stop()
		used := d.takeAll(s, q, time.Second)
		time.Sleep(2 * time.Second)
		backup, before := l.Clone(), l.Recorded()
		time.Sleep(20 * time.Minute)
		used += d.takeAll(s, q, time.Second)
		time.Sleep(3 * time.Second)
		s.Change(func() { s.process++ })
		time.Sleep(time.Second)
		used += d.takeAll(s, q, 5*time.Second)
		if used != 2500 {
			t.Fatalf("%d units were used", used)
		}
		l.Restore(backup)
		for _, lost := range []bool{false, true} {
			if lost {
				s.Change(func() { s.process++ })
			}
			if n := d.takeAll(s, q, 30*time.Second) + other.takeAll(s, q, 30*time.Second); n != 0 {
				t.Errorf("%d units more, lost: %t", n, lost)
			}
			if after := l.Total("q"); after != used {
				t.Errorf("%d units in the ledger, %d were used, lost: %t", after, used, lost)
			}
		}
		if l.Recorded() == before || l.Recorded() != s.held() {
			t.Errorf("%d is recorded, the store holds %d, the backup %d", l.Recorded(), s.held(), before)
		}
	})
}
