package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const (
	keepEvery = time.Second
	// firstDepth is how many past minutes are searched at first for reservations to be replaced, and laterDepth afterwards.
	firstDepth, laterDepth = 24 * 60, 15
	maxCounted             = 32 // quotas that are counted at once
	pruneEvery             = time.Hour
	pruneTimeout           = time.Minute
	maxKept                = 400 * 24 * time.Hour // longest time that use is kept
	minKept                = 31 * 24 * time.Hour  // what people look back at, however short the windows are
)

// Counter is the part of the engine that counts for checkpoints.
type Counter interface {
	// Count tells what a shard's store has counted in windows, and its time.
	Count(ctx context.Context, shard int, list []Counting) (now int64, counted []Counted, err error)
}

// Counting names a window of a quota and a time.
type Counting struct {
	Quota  *delivery.Quota
	Window int // its place among the quota's
	Since  int64
	All    bool // it holds all that was used since the ledger's first minute, see begins
}

// Counted is what a window counted. A window counts in buckets.
type Counted struct {
	Form   string // how it counts; "" if there is no such window
	Born   int64  // the time of the oldest bucket
	Since  int64  // units in the buckets from that of Counting.Since on
	Newest int64  // units in the bucket of now
}

// Writer keeps the ledger true and small. Once a minute it puts the store's counts since the last time in place of the daemons'
// reservations. Crashed daemons did not use some of theirs. The counts of one window are compared, the longest; where they cannot be, the
// reservations stay.
//
// A nil *Keeper keeps nothing.
type Writer struct {
	opt   Options
	fence *Fence
	store Counter

	counted []int64 // the minute of the last checkpoints, by shard
	depth   int64   // how many past minutes are searched
	outage  retry.Outage
}

// NewWriter makes the keeper of a ledger, nil without one.
func NewWriter(o Options, store Counter, fence *Fence) *Writer {
	if o.Records == nil {
		return nil
	}
	return &Writer{opt: o, fence: fence, store: store, counted: make([]int64, o.Shards), depth: firstDepth}
}

// Run writes checkpoints and prunes the ledger until ctx ends, while this daemon leads.
func (k *Writer) Run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	var pruned time.Time
	retry.Every(ctx, keepEvery, func(now time.Time) {
		if k.opt.Leads != nil && !k.opt.Leads() {
			return
		}
		if err := k.count(ctx); err == nil {
			k.outage.Worked()
		} else if ctx.Err() == nil && k.outage.Failed() {
			k.opt.Logger.Warn("what the quota store has counted is not in the ledger; reservations count as used there", "error", err)
		}
		if now.Sub(pruned) >= pruneEvery && k.prune(ctx) {
			pruned = now
		}
	})
	return nil
}

// now is the time of a shard's store.
func (k *Writer) now(shard int) (int64, bool) {
	k.fence.reserve.mu.Lock()
	defer k.fence.reserve.mu.Unlock()
	return k.fence.reserve.nowIn(shard)
}

// count writes the checkpoints of all shards that have begun a new minute.
func (k *Writer) count(ctx context.Context) error {
	due, first := map[int]int64{}, int64(math.MaxInt64)
	for shard, last := range k.counted {
		now, known := k.now(shard)
		if _, open := k.fence.Epoch(shard); open && known && now/ledgerMinute != last {
			due[shard] = now / ledgerMinute
			first = min(first, now/ledgerMinute)
		}
	}
	quotas := k.opt.Quotas()
	if len(due) == 0 || quotas == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	known, err := k.opt.Records.Checkpoints(ctx, first-k.depth)
	if err != nil {
		return fmt.Errorf("read the checkpoints of quotas: %w", err)
	}
	byID := map[string]*delivery.Quota{}
	for _, q := range quotas {
		if inLedger(q) {
			byID[q.ID] = q
		}
	}
	lists := map[int][]delivery.Checkpoint{}
	for _, c := range known {
		if q := byID[c.Quota]; q != nil {
			shard := shards.Of(uint64(q.Shard), k.opt.Shards)
			lists[shard] = append(lists[shard], c)
		}
	}
	for shard, minute := range due {
		for part := range slices.Chunk(lists[shard], maxCounted) {
			if err := k.countShard(ctx, shard, part, byID); err != nil {
				return err
			}
		}
		k.counted[shard] = minute
	}
	k.depth = laterDepth
	return nil
}

// countShard writes the next checkpoints of some of a shard's quotas.
func (k *Writer) countShard(ctx context.Context, shard int, last []delivery.Checkpoint, quotas map[string]*delivery.Quota) error {
	// If the store loses its data from here on, it does not answer, or the ledger does not record this epoch any more.
	epoch, open := k.fence.Epoch(shard)
	if !open {
		return nil
	}
	asks := make([]Counting, len(last))
	for i, c := range last {
		q := quotas[c.Quota]
		asks[i] = Counting{Quota: q, Window: longest(q), Since: c.At}
		if known, _ := k.now(shard); begins(&c, &asks[i], epoch, known) {
			asks[i].Since, asks[i].All = 0, true
		}
	}
	now, counted, err := k.store.Count(ctx, shard, asks)
	if err != nil {
		return fmt.Errorf("count the use of %d quotas: %w", len(asks), err)
	}
	var next []delivery.Checkpoint
	for i := range last {
		if c, ok := nextCheckpoint(&last[i], &asks[i], &counted[i], epoch, now); ok {
			next = append(next, c)
		}
	}
	if len(next) == 0 {
		return nil
	}
	if err := k.opt.Records.WriteCheckpoints(ctx, shard, epoch, next); err != nil {
		return fmt.Errorf("write %d checkpoints: %w", len(next), err)
	}
	return nil
}

// longest is the place of a quota's longest window.
func longest(q *delivery.Quota) (i int) {
	for k, w := range q.Windows {
		if w.Span > q.Windows[i].Span {
			i = k
		}
	}
	return i
}

// begins reports whether the window holds the use since the ledger's first minute, and nothing else: its use began a moment ago, with
// this data. Then there is nothing to compare its count with, and no need to.
//
// The ledger holds all use, so there was none before that minute in the time that the window looks back to. Restored use would be in the
// ledger too. If the window was added since, it has learned the earlier use from the others. None of those in the ledger forgets within
// two minutes.
func begins(last *delivery.Checkpoint, of *Counting, epoch, now int64) bool {
	span, rows := of.Quota.Windows[of.Window].Span, last.Rows
	if last.Epoch == epoch && now-last.At < span.Microseconds() {
		return false
	}
	return rows.Epoch == epoch && (rows.Before+1)*ledgerMinute+clockSlack < now-span.Microseconds()-bucketWidth(span)
}

// nextCheckpoint is the checkpoint at now; false if there is to be none. It begins anew where the counts cannot be
// compared with those of the last one: it replaces no reservation then, but those of later minutes. Where the window's use
// has just begun, its count needs no comparison.
func nextCheckpoint(last *delivery.Checkpoint, of *Counting, c *Counted, epoch, now int64) (next delivery.Checkpoint, ok bool) {
	w, rows := of.Quota.Windows[of.Window], last.Rows
	next = delivery.Checkpoint{
		Quota: of.Quota.ID, Epoch: epoch, Since: last.At, At: now, Window: w.Span.String() + " " + c.Form, Born: c.Born,
		Counted: c.Newest, Begun: now/ledgerMinute + 1,
	}
	switch {
	case c.Form == "" || now <= last.At:
		return next, false
	case of.All && now < rows.First*ledgerMinute+longSpan.Microseconds() && model.PeriodOf(w, now)[0] <= rows.First*ledgerMinute:
		next.Begun, next.Used = rows.First, c.Since
		return next, true
	case next.Epoch != last.Epoch || next.Window != last.Window || now-last.At >= w.Span.Microseconds()-bucketWidth(w.Span),
		last.Born > 0 && c.Born != last.Born && now < last.Born+w.Span.Microseconds(): // the oldest are gone before their time
		return next, true
	}
	// Less than before: units were given back. Later use soon makes up for it.
	next.Begun, next.Used = last.Begun, c.Since-last.Counted
	return next, next.Used >= 0
}

// prune deletes minutes that are no longer needed or shown, and merges those of the last days. It returns false if these minutes are not
// known yet.
func (k *Writer) prune(ctx context.Context) bool {
	kept, oldest := time.Duration(0), int64(math.MaxInt64)
	for _, q := range k.opt.Quotas() {
		now, known := k.now(shards.Of(uint64(q.Shard), k.opt.Shards))
		if !known {
			return false
		}
		oldest = min(oldest, now)
		for _, w := range q.Windows {
			kept = max(kept, w.Span)
		}
	}
	if kept == 0 {
		return false // no quotas, or the catalog is not loaded yet
	}
	kept = min(max(kept+24*time.Hour, minKept), maxKept)
	ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	before := (oldest - kept.Microseconds()) / ledgerMinute
	if err := k.opt.Records.PruneUsage(ctx, before, max(before, oldest/ledgerMinute-int64(delivery.UsageKeptApart/time.Minute))); err != nil {
		k.opt.Logger.Debug("the usage ledger was not pruned; the next attempt is in an hour", "error", err)
	}
	return true
}
