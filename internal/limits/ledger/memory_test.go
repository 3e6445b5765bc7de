package ledger

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// memLedger is a ledger of one shard in memory.
type memLedger struct {
	caller
	epochs  map[int]int64
	clocks  map[int]delivery.Incarnation // what is recorded with the epochs
	causes  []string
	usage   map[memMinute]int64
	counts  map[string]memCount // what was written of each quota last
	takers  map[string]delivery.Taker
	until   delivery.Taker // up to when all is written, and of which data
	anchors map[delivery.Anchor]int64
	pruned  []int64
}

type memMinute struct {
	node, quota string
	minute      int64
}

type memCount struct {
	delivery.Taken
	epoch, at int64
}

func newMemLedger() *memLedger {
	return &memLedger{
		epochs: map[int]int64{}, clocks: map[int]delivery.Incarnation{}, usage: map[memMinute]int64{},
		counts: map[string]memCount{}, takers: map[string]delivery.Taker{}, anchors: map[delivery.Anchor]int64{},
	}
}

// clone is a backup.
func (l *memLedger) clone() *memLedger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := newMemLedger()
	c.epochs, c.clocks, c.usage, c.counts = maps.Clone(l.epochs), maps.Clone(l.clocks), maps.Clone(l.usage), maps.Clone(l.counts)
	c.takers, c.until = maps.Clone(l.takers), l.until
	return c
}

// restore puts a backup in place.
func (l *memLedger) restore(backup *memLedger) {
	b := backup.clone()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochs, l.clocks, l.usage, l.counts, l.takers, l.until = b.epochs, b.clocks, b.usage, b.counts, b.takers, b.until
}

func (l *memLedger) do(ctx context.Context, what func()) error {
	return l.call(ctx, func() error { what(); return nil })
}

// caller is what calls of a fake have in common. delay comes before and after what a call does; a call whose context ends in the second
// has done it all the same.
type caller struct {
	mu    sync.Mutex // guards what follows, and what the fake holds
	delay func() time.Duration
	err   error                             // of every call
	step  func(do func() error) (err error) // around every call
}

func (c *caller) call(ctx context.Context, what func() error) error {
	c.mu.Lock()
	delay, step := c.delay, c.step
	c.mu.Unlock()
	if delay == nil {
		delay = func() time.Duration { return 0 }
	}
	if step == nil {
		step = func(do func() error) error { return do() }
	}
	return step(func() error {
		err := pass(ctx, delay())
		if err != nil {
			return err
		}
		c.change(func() {
			if err = c.err; err == nil {
				err = what()
			}
		})
		return errors.Join(err, pass(ctx, delay()))
	})
}

// change does something to what the fake holds, or looks into it.
func (c *caller) change(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

func (c *caller) fail(err error) { c.change(func() { c.err = err }) }

func (c *caller) slow(delay func() time.Duration) { c.change(func() { c.delay = delay }) }

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	if d > 0 {
		_ = retry.Sleep(ctx, d)
	}
	return ctx.Err()
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

func (l *memLedger) Join(ctx context.Context, node string, as []delivery.Taker) (written map[int]int64, err error) {
	written = map[int]int64{}
	err = l.do(ctx, func() {
		for _, a := range as {
			if l.epochs[a.Shard] != a.Epoch {
				continue
			}
			if a.Since = a.At; l.takers[node].Epoch == a.Epoch {
				a.Since = l.takers[node].Since
			}
			l.takers[node], written[a.Shard] = a, 0
			if l.until.Epoch == a.Epoch {
				written[a.Shard] = l.until.At
			}
		}
	})
	return written, err
}

func (l *memLedger) Takers(ctx context.Context, _ int) (list []delivery.Taker, err error) {
	err = l.do(ctx, func() {
		for _, a := range l.takers {
			if l.until.Epoch == a.Epoch {
				a.Since = max(a.Since, l.until.At)
			}
			list = append(list, a)
		}
	})
	return list, err
}

func (l *memLedger) Leave(ctx context.Context, shard int, nodes []string, usage []delivery.Usage) error {
	return l.do(ctx, func() {
		left := ""
		for _, n := range nodes {
			a, known := l.takers[n]
			if !known || len(usage) > 0 && a.Epoch >= l.epochs[shard] {
				continue
			}
			delete(l.takers, n)
			left = n
		}
		for _, u := range usage {
			if left != "" {
				l.usage[memMinute{left, u.Quota, u.Minute}] += u.Units
			}
		}
	})
}

func (l *memLedger) WriteTaken(
	ctx context.Context, shard int, epoch, since, at int64, list []delivery.Taken, anchors []delivery.Anchor,
) (ok bool, err error) {
	err = l.do(ctx, func() {
		if ok = l.epochs[shard] == epoch; !ok {
			return
		}
		for _, t := range list {
			had := l.counts[t.Quota]
			more := t.Units
			switch {
			case had.epoch == epoch && had.at >= at:
				continue
			case had.epoch == 0:
				more = min(more, t.Held)
			}
			if c := l.causes[len(l.causes)-1]; had.epoch != epoch && (c == delivery.CauseFirst || c == delivery.CauseRestored) {
				missing := t.Held
				for m, units := range l.usage {
					if m.quota == t.Quota && m.minute > (t.Since+15*second)/ledgerMinute {
						missing -= units
					}
				}
				more = max(more, missing)
			}
			if had.epoch == epoch && had.Born == t.Born {
				more, t.Units = max(0, t.Units-had.Units), max(t.Units, had.Units)
			}
			l.usage[memMinute{"", t.Quota, at / ledgerMinute}] += more
			l.counts[t.Quota] = memCount{t, epoch, at}
		}
		for _, a := range anchors {
			key := delivery.Anchor{Quota: a.Quota, Span: a.Span}
			l.anchors[key] = max(l.anchors[key], a.ResetAt)
		}
		until := l.until.At
		if l.until.Epoch != epoch {
			until = 0
		}
		if ok = since <= until; !ok {
			return
		}
		if l.until.Epoch != epoch || l.until.At < at {
			l.until = delivery.Taker{Epoch: epoch, At: at}
		}
		for node, a := range l.takers {
			if a.Epoch < epoch || a.Epoch == epoch && a.At < at-goesOnFor.Microseconds()-20*second {
				delete(l.takers, node)
			}
		}
	})
	return ok, err
}

func (l *memLedger) Usage(ctx context.Context, quotas []string, sinceMinute int64) (list []delivery.Usage, err error) {
	err = l.do(ctx, func() {
		sums := map[delivery.Usage]int64{}
		for m, units := range l.usage {
			if slices.Contains(quotas, m.quota) && m.minute >= sinceMinute {
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

// recorded is the epoch of the first shard.
func (l *memLedger) recorded() (n int64) {
	l.change(func() { n = l.epochs[0] })
	return n
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
