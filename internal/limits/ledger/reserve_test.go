package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/testservices"
)

// memLedger is a ledger in memory. delay comes before and after what a call does; a call whose context ends in the
// second has done it all the same.
type memLedger struct {
	mu      sync.Mutex // guards what follows
	delay   func() time.Duration
	err     error // of every call
	epochs  map[int]int64
	clocks  map[int]delivery.Incarnation // what is recorded with the epochs
	causes  []string
	usage   map[memMinute]int64
	written map[memMinute]int64            // the epoch that the units are taken from
	points  map[string]delivery.Checkpoint // the last of each quota
	anchors map[delivery.Anchor]int64
	writes  []time.Time
	pruned  []int64
}

type memMinute struct {
	node, quota string
	minute      int64
}

func newMemLedger() *memLedger {
	return &memLedger{
		delay: func() time.Duration { return 0 }, epochs: map[int]int64{}, clocks: map[int]delivery.Incarnation{}, usage: map[memMinute]int64{}, written: map[memMinute]int64{},
		points:  map[string]delivery.Checkpoint{},
		anchors: map[delivery.Anchor]int64{},
	}
}

func (l *memLedger) do(ctx context.Context, what func()) error {
	l.mu.Lock()
	delay := l.delay
	l.mu.Unlock()
	if err := pass(ctx, delay()); err != nil {
		return err
	}
	l.mu.Lock()
	err := l.err
	if err == nil {
		what()
	}
	l.mu.Unlock()
	return errors.Join(err, pass(ctx, delay()))
}

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	if d > 0 {
		_ = retry.Sleep(ctx, d)
	}
	return ctx.Err()
}

func (l *memLedger) slow(delay func() time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *memLedger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *memLedger) Epoch(ctx context.Context, shard int) (is delivery.Incarnation, err error) {
	err = l.do(ctx, func() {
		is = l.clocks[shard]
		is.Epoch = l.epochs[shard]
	})
	return is, err
}

func (l *memLedger) ReplaceEpoch(
	ctx context.Context, shard int, old int64, next delivery.Incarnation, cause string,
) (n int64, err error) {
	err = l.do(ctx, func() {
		if l.epochs[shard] == old {
			l.epochs[shard], l.clocks[shard] = next.Epoch, next
			l.causes = append(l.causes, cause)
		}
		n = l.epochs[shard]
	})
	return n, err
}

func (l *memLedger) WriteUsage(ctx context.Context, p delivery.UsagePage) (stale []int, err error) {
	err = l.do(ctx, func() {
		for shard, epoch := range p.Epochs {
			if l.epochs[shard] != epoch {
				stale = append(stale, shard)
			}
		}
		if len(stale) > 0 || len(p.Usage)+len(p.Anchors) == 0 {
			return
		}
		l.writes = append(l.writes, time.Now())
		for _, u := range p.Usage {
			m := memMinute{p.Node, u.Quota, u.Minute}
			l.usage[m], l.written[m] = u.Units, u.Epoch
		}
		for _, a := range p.Anchors {
			key := delivery.Anchor{Quota: a.Quota, Span: a.Span}
			l.anchors[key] = max(l.anchors[key], a.ResetAt)
		}
	})
	return stale, err
}

func (l *memLedger) Usage(ctx context.Context, quotas []string, sinceMinute int64) (list []delivery.Usage, err error) {
	err = l.do(ctx, func() {
		sums := map[delivery.Usage]int64{}
		for m, units := range l.usage {
			if slices.Contains(quotas, m.quota) && m.minute >= sinceMinute && !l.replaced(m, l.points[m.quota]) {
				sums[delivery.Usage{Quota: m.quota, Minute: m.minute}] += units
			}
		}
		for u, units := range sums {
			u.Units = units
			list = append(list, u)
		}
		slices.SortFunc(list, func(a, b delivery.Usage) int { return int(a.Minute - b.Minute) })
	})
	return list, err
}

func (l *memLedger) Anchors(ctx context.Context, quotas []string) (list []delivery.Anchor, err error) {
	err = l.do(ctx, func() {
		for a, at := range l.anchors {
			if slices.Contains(quotas, a.Quota) {
				a.ResetAt = at
				list = append(list, a)
			}
		}
	})
	return list, err
}

// replaced reports whether a checkpoint has replaced a reservation.
func (l *memLedger) replaced(m memMinute, c delivery.Checkpoint) bool {
	return m.node != "" && l.written[m] != 0 && l.written[m] == c.Epoch && m.minute >= c.Begun && m.minute < c.At/ledgerMinute
}

func (l *memLedger) Checkpoints(ctx context.Context, sinceMinute int64) (list []delivery.Checkpoint, err error) {
	err = l.do(ctx, func() {
		found := map[string]bool{}
		for m := range l.usage {
			if m.node != "" && m.minute >= sinceMinute && !found[m.quota] {
				found[m.quota] = true
				c := l.points[m.quota]
				c.Quota, c.Rows = m.quota, l.rows(m.quota, sinceMinute)
				list = append(list, c)
			}
		}
	})
	return list, err
}

// rows tells where the units of a quota come from. Under mu.
func (l *memLedger) rows(quota string, sinceMinute int64) (r delivery.LedgerRows) {
	r.First = math.MaxInt64
	for m := range l.usage {
		if m.quota == quota && m.minute >= sinceMinute {
			r.First, r.Epoch = min(r.First, m.minute), l.written[m]
		}
	}
	for m := range l.usage {
		switch {
		case m.quota != quota:
		case m.minute < r.First:
			r.Before = max(r.Before, m.minute)
		case l.written[m] != r.Epoch:
			r.Epoch = 0
			return r
		}
	}
	return r
}

func (l *memLedger) WriteCheckpoints(ctx context.Context, shard int, epoch int64, list []delivery.Checkpoint) error {
	return l.do(ctx, func() {
		for _, c := range list {
			if l.epochs[shard] != epoch || l.points[c.Quota].At != c.Since {
				continue
			}
			l.usage[memMinute{"", c.Quota, (c.At - 5*second) / ledgerMinute}] += c.Used
			c.Used = 0
			l.points[c.Quota] = c
			maps.DeleteFunc(l.usage, func(m memMinute, _ int64) bool { return m.quota == c.Quota && l.replaced(m, c) })
		}
	})
}

func (l *memLedger) PruneUsage(ctx context.Context, beforeMinute, _ int64) error {
	return l.do(ctx, func() { l.pruned = append(l.pruned, beforeMinute) })
}

// total is what the ledger holds of a quota.
func (l *memLedger) total(quota string) (sum int64) {
	list, _ := l.Usage(context.Background(), []string{quota}, 0)
	for _, u := range list {
		sum += u.Units
	}
	return sum
}

// read looks into the ledger.
func (l *memLedger) read(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what()
}

// writings is how many writes there were.
func (l *memLedger) writings() (n int) {
	l.read(func() { n = len(l.writes) })
	return n
}

// recorded is the epoch of the first shard.
func (l *memLedger) recorded() (n int64) {
	l.read(func() { n = l.epochs[0] })
	return n
}

// units is what the ledger holds for a minute.
func (l *memLedger) units(node, quota string, minute int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usage[memMinute{node, quota, minute}]
}

// storeNow is the store's time in a bubble.
func storeNow(int) (int64, bool) { return time.Now().UnixMicro(), true }

// journal is a log that may be read while it is written.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// reserving is a reserve at work, in a bubble.
type reserving struct {
	*Reserve
	ledger *memLedger
	log    *journal
	reg    *prometheus.Registry
	stop   func()
}

func newReserving(quotas ...*delivery.Quota) *reserving {
	r := &reserving{ledger: newMemLedger(), log: &journal{}, reg: prometheus.NewRegistry()}
	r.Reserve = NewReserve(Options{
		Records: r.ledger, Node: "n", Quotas: func() []*delivery.Quota { return quotas }, Now: storeNow, Shards: 1,
		Logger: slog.New(slog.NewTextHandler(r.log, nil)), Registerer: r.reg,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	now, _ := storeNow(0)
	r.ledger.epochs[0] = 1
	r.resume(0, 1, now)
	running.Go(func() { _ = r.Run(ctx) })
	r.stop = func() { cancel(); running.Wait() }
	return r
}

// take is a call that gets all it may ask for.
func (r *reserving) take(q *delivery.Quota, want int64) int64 {
	now, _ := storeNow(0)
	n := r.Allow([]*delivery.Quota{q}, 1, want)
	r.Use([]*delivery.Quota{q}, n, n, now)
	return n
}

// await takes again until something is there.
func (r *reserving) await(q *delivery.Quota, want int64) int64 {
	for range 1000 {
		if n := r.take(q, want); n > 0 {
			return n
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0
}

func hourly(limit int) *delivery.Quota {
	return &delivery.Quota{ID: "q", Revision: 1, Windows: windows(limit, time.Hour)}
}

func minuteNow() int64 { return time.Now().UnixMicro() / ledgerMinute }

func TestTheFirstAskIsReservedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(100_000)
		r := newReserving(q)
		defer r.stop()
		time.Sleep(300 * time.Millisecond)
		r.ledger.slow(func() time.Duration { return 10 * time.Millisecond })
		if n := r.take(q, 5000); n != 0 {
			t.Fatalf("%d units that are not in the ledger", n)
		}
		time.Sleep(21 * time.Millisecond)
		if n := r.take(q, 5000); n != 5000 {
			t.Errorf("%d units one round trip later", n)
		}
		for m := minuteNow(); m <= minuteNow()+aheadMinutes; m++ {
			if n := r.ledger.units("n", "q", m); n < 1000 {
				t.Errorf("minute %d: %d reserved", m-minuteNow(), n)
			}
		}
	})
}

func TestOnlyLongStrictQuotasAreInTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReserving()
		defer r.stop()
		for name, q := range map[string]*delivery.Quota{
			"short":    {ID: "q", Windows: windows(10, 2*time.Minute)},
			"eventual": {ID: "q", Windows: windows(10, time.Hour), Mode: delivery.ModeEventual},
			"exempt":   {ID: "q", Windows: windows(10, time.Hour), Exempt: 100},
		} {
			if n := r.take(q, 7); n != 7 {
				t.Errorf("%s: %d", name, n)
			}
		}
		shadow := hourly(10)
		shadow.Mode = delivery.ModeShadow
		if n := r.take(shadow, 7); n != 7 {
			t.Errorf("shadow: %d", n)
		}
		time.Sleep(2 * time.Second)
		if n := r.ledger.units("n", "q", minuteNow()); n < 7 {
			t.Errorf("shadow: %d in the ledger", n)
		}
	})
}

func TestWithoutALedgerEverythingIsAllowed(t *testing.T) {
	r := NewReserve(Options{})
	if r != nil {
		t.Fatal(r)
	}
	quotas := []*delivery.Quota{hourly(1)}
	if n := r.Allow(quotas, 1, 9); n != 9 {
		t.Error(n)
	}
	r.Use(quotas, 9, 9, epoch)
	r.GiveBack(quotas, 9, epoch)
	r.Anchors(quotas, nil, epoch)
	if err := errors.Join(r.Run(context.Background()), r.flush(context.Background())); err != nil {
		t.Error(err)
	}
}

func TestLessThanTheFirstJobIsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(1_000_000)
		r := newReserving(q)
		defer r.stop()
		r.await(q, 1)
		quotas := []*delivery.Quota{q}
		all := r.Allow(quotas, 1, 100_000)
		if n := r.Allow(quotas, 1, 1); n != 0 {
			t.Errorf("%d of what is held", n)
		}
		r.Use(quotas, all, all-10, time.Now().UnixMicro())
		if n := r.Allow(quotas, 11, 20); n != 0 {
			t.Errorf("%d for a job of 11", n)
		}
		if n := r.Allow(quotas, 10, 20); n != 10 {
			t.Errorf("%d for a job of 10", n)
		}
		r.Use(quotas, 10, 0, 0)
		r.GiveBack(quotas, 5, time.Now().UnixMicro())
		if n := r.Allow(quotas, 1, 20); n != 15 {
			t.Errorf("%d after a call that brought nothing and a refund", n)
		}
	})
}

func TestCloseToTheEndOfAMinuteBothCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(1_000_000)
		r := newReserving(q)
		defer r.stop()
		r.await(q, 1)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - 3*time.Second)))
		r.mu.Lock()
		next := r.accounts["q"].minutes[minuteNow()+1]
		next.used = next.durable - 7
		r.mu.Unlock()
		if n := r.Allow([]*delivery.Quota{q}, 1, 500); n != 7 {
			t.Errorf("%d", n)
		}
	})
}

func TestTwoMinutesWithoutTheLedgerStopNobodyWhoSendsSteadily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, local := hourly(1_000_000), hourly(1_000_000)
		local.ID, local.OnStoreFailure = "local", delivery.PolicyLocalShare
		r := newReserving(closed, local)
		defer r.stop()
		r.await(closed, 1)
		r.await(local, 1)
		send := func(d time.Duration) (short, shortLocal time.Duration) {
			for range d / (100 * time.Millisecond) {
				if n := r.take(closed, 20); n < 20 {
					short += 100 * time.Millisecond
				}
				if n := r.take(local, 20); n < 20 {
					shortLocal += 100 * time.Millisecond
				}
				time.Sleep(100 * time.Millisecond)
			}
			return short, shortLocal
		}
		send(150 * time.Second)
		r.ledger.fail(errors.New("no such host"))
		if short, local := send(2 * time.Minute); short+local > 0 {
			t.Errorf("short for %v and %v", short, local)
		}
		if lag := r.outage.Lasts().Seconds(); lag < 60 || lag > 121 {
			t.Errorf("lag %v s", lag)
		}
		if short, local := send(3 * time.Minute); short < time.Minute || local > 0 {
			t.Errorf("closed short for %v, local-share for %v", short, local)
		}
		r.ledger.fail(nil)
		time.Sleep(1100 * time.Millisecond)
		if short, _ := send(time.Minute); short > 0 {
			t.Errorf("short for %v with the ledger", short)
		}
		if n := r.ledger.units("n", "local", minuteNow()-2); n < 12_000 {
			t.Errorf("%d of 12000 units in the ledger that were used without it", n)
		}
		if log := r.log.String(); strings.Count(log, "level=WARN") != 1 || strings.Count(log, "level=INFO") != 1 {
			t.Errorf("told:\n%s", log)
		}
		if n := testutil.CollectAndCount(r.reg); n != 2 || r.outage.Lasts().Seconds() != 0 {
			t.Errorf("%d metrics, lag %v", n, r.outage.Lasts().Seconds())
		}
	})
}

func TestSteadyUseIsWrittenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(1_000_000)
		r := newReserving(q)
		defer r.stop()
		r.await(q, 100)
		used := map[int64]int64{}
		for range 3000 {
			used[minuteNow()] += r.take(q, 10)
			time.Sleep(100 * time.Millisecond)
		}
		before := r.ledger.writings()
		for range 3000 {
			used[minuteNow()] += r.take(q, 10)
			time.Sleep(100 * time.Millisecond)
		}
		if n := r.ledger.writings() - before; n > 15 {
			t.Errorf("%d writes in five minutes of steady use", n)
		}
		for m := minuteNow() - 5; m < minuteNow()-1; m++ {
			if n := r.ledger.units("n", "q", m); n != used[m] {
				t.Errorf("%d in the ledger, %d used", n, used[m])
			}
		}
		if n := r.ledger.units("n", "q", minuteNow()+aheadMinutes); n < 2*6000 || n > 4*6000 {
			t.Errorf("%d reserved ahead of 6000 a minute", n)
		}
	})
}

func TestAFastStartIsHardlySlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(500_000_000)
		r := newReserving(q)
		r.ledger.slow(func() time.Duration { return time.Millisecond })
		defer r.stop()
		sent := int64(0)
		for range 500 { // 250,000 a second
			sent += r.take(q, 5000)
			time.Sleep(20 * time.Millisecond)
		}
		if sent < 2_400_000 {
			t.Errorf("%d of 2,500,000 in the first ten seconds", sent)
		}
	})
}

func TestUsedUpQuotasAreDeniedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []int{0, 5} {
			q := hourly(limit)
			r := newReserving(q)
			r.take(q, 40)
			time.Sleep(100 * time.Millisecond)
			held := r.Allow([]*delivery.Quota{q}, 1, 40)
			r.Use([]*delivery.Quota{q}, held, int64(limit), time.Now().UnixMicro())
			time.Sleep(100 * time.Millisecond)
			r.Use([]*delivery.Quota{q}, r.Allow([]*delivery.Quota{q}, 1, 40), 0, 0)
			time.Sleep(100 * time.Millisecond)
			if n := r.Allow([]*delivery.Quota{q}, 40, 40); n != 40 {
				t.Errorf("limit %d: %d of 40 may be asked for", limit, n)
			}
			if n := r.ledger.units("n", "q", minuteNow()); n > 200 {
				t.Errorf("limit %d: %d reserved", limit, n)
			}
			r.stop()
		}
	})
}

func TestTheLastWordIsWhatWasUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(1_000_000)
		r := newReserving(q)
		r.await(q, 100)
		r.take(q, 23)
		held := r.Allow([]*delivery.Quota{q}, 1, 10) // its reply never came
		r.stop()
		if n := r.ledger.units("n", "q", minuteNow()); n != 123+held || held != 10 {
			t.Errorf("%d in the ledger", n)
		}
		if n := r.ledger.units("n", "q", minuteNow()+3); n != 0 {
			t.Errorf("%d reserved by nobody", n)
		}
		if n := r.take(q, 1); n != 0 {
			t.Errorf("%d after the end", n)
		}
		if err := r.flush(context.Background()); err != nil || r.ledger.units("n", "q", minuteNow()+3) != 0 {
			t.Error("reserved after the end", err)
		}
	})
}

func TestIdleQuotasAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(1_000_000)
		r := newReserving(q)
		defer r.stop()
		r.await(q, 100)
		first := minuteNow()
		time.Sleep(20 * time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.accounts) != 0 {
			t.Errorf("%+v", r.accounts["q"])
		}
		r.ledger.read(func() {
			for m, units := range r.ledger.usage {
				if units > 0 && m.minute != first {
					t.Errorf("minute %d: %d units", m.minute-first, units)
				}
			}
		})
	})
}

func TestAnchorsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &delivery.Quota{ID: "q", Windows: []delivery.Window{
			{Span: time.Hour, Limit: 100, Algorithm: delivery.AlgorithmFixed},
			{Span: 24 * time.Hour, Limit: 100, Algorithm: delivery.AlgorithmFixed, Anchor: "day"},
			{Span: 2 * time.Hour, Limit: 100},
		}}
		r := newReserving(q)
		defer r.stop()
		r.await(q, 1)
		now := time.Now().UnixMicro()
		note := func(at int64) {
			var states []delivery.WindowState
			for i := range q.Windows {
				states = append(states, delivery.WindowState{Quota: "q", Window: i, ResetAt: at})
			}
			r.Anchors([]*delivery.Quota{q}, states, now)
			time.Sleep(2 * time.Second)
		}
		known := func() (list []delivery.Anchor) {
			list, err := r.ledger.Anchors(context.Background(), []string{"q"})
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		note(now)
		if list := known(); len(list) != 0 {
			t.Errorf("a window that is not open: %v", list)
		}
		note(now + 5*second)
		want := delivery.Anchor{Quota: "q", Span: time.Hour, ResetAt: now + 5*second}
		if list := known(); len(list) != 1 || list[0] != want {
			t.Errorf("%v", list)
		}
		writes := r.ledger.writings()
		if note(now + 5*second); r.ledger.writings() > writes+1 {
			t.Errorf("what is known is written again")
		}
	})
}

func TestAClockThatGoesBackDoesNotRewriteThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := hourly(1_000_000)
		back := int64(0)
		l := newMemLedger()
		r := NewReserve(Options{
			Records: l, Node: "n", Shards: 1, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
			Quotas: func() []*delivery.Quota { return nil },
			Now:    func(int) (int64, bool) { return time.Now().UnixMicro() - back, true },
		})
		l.epochs[0] = 1
		r.resume(0, 1, time.Now().UnixMicro())
		quotas := []*delivery.Quota{q}
		take := func(want int64) (n int64) {
			for range 2 {
				now, _ := r.now(q)
				n = r.Allow(quotas, 1, want)
				r.Use(quotas, n, n, now)
				if err := r.flush(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			return n
		}
		first := minuteNow()
		for range 30 {
			take(700)
			time.Sleep(time.Minute)
		}
		if n := l.units("n", "q", first+5); n != 1400 {
			t.Fatalf("%d", n)
		}
		back = 24 * ledgerMinute
		if n := take(2000); n != 2000 {
			t.Errorf("%d after the clock went back", n)
		}
		if n := l.units("n", "q", first+6); n != 1400 {
			t.Errorf("the ledger forgot what was used: %d", n)
		}
	})
}

func TestMostInAMinute(t *testing.T) {
	fixed := delivery.AlgorithmFixed
	for _, tc := range []struct {
		windows []delivery.Window
		want    int64
	}{
		{windows(100, time.Hour), 100},
		{windows(100, time.Hour, 30, time.Minute), 60},
		{windows(100, time.Hour, 2, time.Second), 100},
		{windows(1000, time.Hour, 2, time.Second), 122},
		{[]delivery.Window{{Span: time.Hour, Limit: 100, Algorithm: fixed}}, 200},
		{windows(int(model.MaxLimit), time.Hour), model.MaxLimit},
		{windows(int(model.MaxLimit), time.Second), model.MaxLimit},
		{windows(0, time.Hour), 0},
	} {
		if n := maxPerMinute(&delivery.Quota{Windows: tc.windows}); n != tc.want {
			t.Errorf("%v: %d, want %d", tc.windows, n, tc.want)
		}
	}
}

// TestTheLedgerNeverSaysLess runs callers against a ledger that is slow, and fails, with and without having done what
// it was told.
func TestTheLedgerNeverSaysLess(t *testing.T) {
	testservices.Simulation(t)
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		slow := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "slow ms")) * time.Millisecond
		limit := rapid.SampledFrom([]int{10, 1000, 10_000_000}).Draw(rt, "limit")
		var wrong string
		synctest.Test(t, func(*testing.T) { wrong = ledgerNeverSaysLess(seed, slow, limit) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func ledgerNeverSaysLess(seed uint64, slow time.Duration, limit int) (wrong string) {
	var mu sync.Mutex // of the dice
	dice := rand.New(rand.NewPCG(seed, 1))
	roll := func(n int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		return dice.Int64N(n)
	}
	q := hourly(limit)
	r := newReserving(q)
	r.ledger.slow(func() time.Duration { return time.Duration(roll(int64(slow) + 1)) })
	quotas := []*delivery.Quota{q}
	used, granted := map[int64]int64{}, int64(0)
	var check sync.Mutex // of used and wrong
	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			for range 400 {
				n := r.Allow(quotas, 1, 1+roll(300))
				time.Sleep(time.Duration(roll(int64(200 * time.Millisecond))))
				got := min(n, roll(400))
				at := time.Now().UnixMicro()
				check.Lock()
				used[at/ledgerMinute] += got
				granted += got
				if has := r.ledger.units("n", "q", at/ledgerMinute); has < used[at/ledgerMinute] {
					wrong = fmt.Sprintf("%d used, %d in the ledger", used[at/ledgerMinute], has)
				}
				check.Unlock()
				r.Use(quotas, n, got, at)
				time.Sleep(time.Duration(roll(int64(500 * time.Millisecond))))
				if back := min(got, roll(100)); back > 0 && roll(3) == 0 {
					check.Lock()
					used[at/ledgerMinute] -= back
					granted -= back
					r.GiveBack(quotas, back, at)
					check.Unlock()
				}
				if roll(100) == 0 {
					r.ledger.fail(errors.New("away"))
				} else if roll(10) == 0 {
					r.ledger.fail(nil)
				}
			}
		})
	}
	callers.Wait()
	r.ledger.fail(nil)
	r.ledger.slow(func() time.Duration { return 0 })
	time.Sleep(4 * time.Second)
	r.stop()
	for m, n := range used {
		if has := r.ledger.units("n", "q", m); has != n && wrong == "" {
			wrong = fmt.Sprintf("in the end: %d used, %d in the ledger", n, has)
		}
	}
	if granted == 0 && wrong == "" {
		wrong = "nothing was ever allowed"
	}
	return wrong
}
