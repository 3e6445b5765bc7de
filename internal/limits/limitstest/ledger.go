package limitstest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// Of the store's time, in microseconds.
const second, minute = int64(1_000_000), int64(60_000_000)

// Ledger is a ledger in memory, as the database keeps it.
type Ledger struct {
	Caller
	Epochs  map[int]delivery.Incarnation // by shard
	Causes  map[int][]string             // of the epochs
	Used    map[Minute]int64
	Written map[int]delivery.Taker // up to when all is written, and of which data
	Joined  map[Node]delivery.Taker
	counts  map[string]count // what was written of each quota last
	anchors map[delivery.Anchor]int64
}

// Node is a daemon that takes from a shard.
type Node struct {
	Shard int
	Name  string
}

// Minute is what a daemon has said, or "" for the store, of a quota's minute.
type Minute struct {
	Node, Quota string
	Minute      int64
}

type count struct {
	delivery.Taken
	epoch, at int64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		Epochs: map[int]delivery.Incarnation{}, Causes: map[int][]string{}, Used: map[Minute]int64{}, Written: map[int]delivery.Taker{},
		Joined: map[Node]delivery.Taker{}, counts: map[string]count{}, anchors: map[delivery.Anchor]int64{},
	}
}

// Clone is a backup.
func (l *Ledger) Clone() *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := NewLedger()
	c.Epochs, c.Used, c.Written = maps.Clone(l.Epochs), maps.Clone(l.Used), maps.Clone(l.Written)
	c.Joined, c.counts = maps.Clone(l.Joined), maps.Clone(l.counts)
	return c
}

// Restore puts a backup in place.
func (l *Ledger) Restore(backup *Ledger) {
	b := backup.Clone()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Epochs, l.Used, l.Written, l.Joined, l.counts = b.Epochs, b.Used, b.Written, b.Joined, b.counts
}

func (l *Ledger) do(ctx context.Context, what func()) error {
	return l.Call(ctx, func() error { what(); return nil })
}

// Caller is what calls of a fake have in common.
type Caller struct {
	// Delay comes before and after what a call does; a call whose context ends in the second has done it all the same. nil: at once.
	Delay func() time.Duration
	Err   error                             // of every call
	Step  func(do func() error) (err error) // around every call; nil: nothing is

	mu sync.Mutex // guards these fields, and what the fake holds
}

// Call does what a call of the fake does.
func (c *Caller) Call(ctx context.Context, what func() error) error {
	c.mu.Lock()
	delay, step := c.Delay, c.Step
	c.mu.Unlock()
	if delay == nil {
		delay = func() time.Duration { return 0 }
	}
	if step == nil {
		step = func(do func() error) error { return do() }
	}
	return step(func() error {
		err := Pass(ctx, delay())
		if err != nil {
			return err
		}
		c.Change(func() {
			if err = c.Err; err == nil {
				err = what()
			}
		})
		return errors.Join(err, Pass(ctx, delay()))
	})
}

// Change does something to what the fake holds, or looks into it.
func (c *Caller) Change(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// Fail makes every call fail; nil: no more.
func (c *Caller) Fail(err error) { c.Change(func() { c.Err = err }) }

// Pass lets time go by.
func Pass(ctx context.Context, d time.Duration) error {
	if d > 0 {
		_ = retry.Sleep(ctx, d)
	}
	return ctx.Err()
}

// Epoch implements ledger.Database.
func (l *Ledger) Epoch(ctx context.Context, shard int) (is delivery.Incarnation, err error) {
	err = l.do(ctx, func() { is = l.Epochs[shard] })
	return is, err
}

// ReplaceEpoch implements ledger.Database.
func (l *Ledger) ReplaceEpoch(ctx context.Context, shard int, old int64, next delivery.Incarnation, cause string) (n int64, err error) {
	err = l.do(ctx, func() {
		if l.Epochs[shard].Epoch == old {
			l.Epochs[shard], l.Causes[shard] = next, append(l.Causes[shard], cause)
		}
		n = l.Epochs[shard].Epoch
	})
	return n, err
}

// Join implements ledger.Database.
func (l *Ledger) Join(ctx context.Context, node string, as []delivery.Taker) (written map[int]int64, err error) {
	written = map[int]int64{}
	err = l.do(ctx, func() {
		for _, a := range as {
			if l.Epochs[a.Shard].Epoch != a.Epoch {
				continue
			}
			of := Node{a.Shard, node}
			if a.Node, a.Since = node, a.At; l.Joined[of].Epoch == a.Epoch {
				a.Since = l.Joined[of].Since
			}
			l.Joined[of], written[a.Shard] = a, 0
			if w := l.Written[a.Shard]; w.Epoch == a.Epoch {
				written[a.Shard] = w.At
			}
		}
	})
	return written, err
}

// Takers implements ledger.Database.
func (l *Ledger) Takers(ctx context.Context, shard int) (list []delivery.Taker, err error) {
	err = l.do(ctx, func() {
		for of, a := range l.Joined {
			if of.Shard != shard {
				continue
			}
			if w := l.Written[shard]; w.Epoch == a.Epoch {
				a.Since = max(a.Since, w.At)
			}
			list = append(list, a)
		}
	})
	return list, err
}

// Leave implements ledger.Database.
func (l *Ledger) Leave(ctx context.Context, shard int, nodes []string, usage []delivery.Usage) error {
	return l.do(ctx, func() {
		left := ""
		for _, n := range nodes {
			a, known := l.Joined[Node{shard, n}]
			if !known || len(usage) > 0 && a.Epoch >= l.Epochs[shard].Epoch {
				continue
			}
			delete(l.Joined, Node{shard, n})
			left = n
		}
		for _, u := range usage {
			if left != "" {
				l.Used[Minute{left, u.Quota, u.Minute}] += u.Units
			}
		}
	})
}

// WriteTaken implements ledger.Database.
func (l *Ledger) WriteTaken(
	ctx context.Context, shard int, epoch, since, at int64, list []delivery.Taken, anchors []delivery.Anchor,
) (ok bool, err error) {
	err = l.do(ctx, func() {
		if ok = l.Epochs[shard].Epoch == epoch; !ok {
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
			if c := l.Causes[shard][len(l.Causes[shard])-1]; had.epoch != epoch && (c == delivery.CauseFirst || c == delivery.CauseRestored) {
				missing := t.Held
				for m, units := range l.Used {
					if m.Quota == t.Quota && m.Minute > (t.Since+15*second)/minute {
						missing -= units
					}
				}
				more = max(more, missing)
			}
			if had.epoch == epoch && had.Born == t.Born {
				more, t.Units = max(0, t.Units-had.Units), max(t.Units, had.Units)
			}
			l.Used[Minute{"", t.Quota, at / minute}] += more
			l.counts[t.Quota] = count{t, epoch, at}
		}
		for _, a := range anchors {
			key := delivery.Anchor{Quota: a.Quota, Span: a.Span}
			l.anchors[key] = max(l.anchors[key], a.ResetAt)
		}
		was := l.Written[shard]
		if was.Epoch != epoch {
			was = delivery.Taker{Epoch: epoch}
		}
		if ok = since <= was.At; !ok {
			return
		}
		was.At = max(was.At, at)
		l.Written[shard] = was
		for of, a := range l.Joined {
			if of.Shard == shard && (a.Epoch < epoch || a.Epoch == epoch && a.At < at-150*second) {
				delete(l.Joined, of)
			}
		}
	})
	return ok, err
}

// Usage implements ledger.Database.
func (l *Ledger) Usage(ctx context.Context, quotas []string, sinceMinute int64) (list []delivery.Usage, err error) {
	err = l.do(ctx, func() {
		sums := map[delivery.Usage]int64{}
		for m, units := range l.Used {
			if slices.Contains(quotas, m.Quota) && m.Minute >= sinceMinute {
				sums[delivery.Usage{Quota: m.Quota, Minute: m.Minute}] += units
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

// Anchors implements ledger.Database.
func (l *Ledger) Anchors(ctx context.Context, quotas []string) (list []delivery.Anchor, err error) {
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

// Total is what the ledger holds of a quota.
func (l *Ledger) Total(quota string) (sum int64) {
	list, _ := l.Usage(context.Background(), []string{quota}, 0)
	for _, u := range list {
		sum += u.Units
	}
	return sum
}

// Recorded is the epoch of the first shard.
func (l *Ledger) Recorded() (n int64) {
	l.Change(func() { n = l.Epochs[0].Epoch })
	return n
}
