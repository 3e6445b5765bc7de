package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// joinEvery is how often a daemon says that it goes on. In every second turn it writes what the store counts. Each takes writeTimeout at most.
	joinEvery, writeTimeout = time.Second, 2 * time.Second
	// overdueAfter is how old the ledger may be before any daemon writes it, not only the one that leads.
	overdueAfter = 10 * time.Second
	maxCounted   = 32 // quotas that are counted at once
	pruneEvery   = time.Hour
	pruneTimeout = time.Minute
	maxKept      = 400 * 24 * time.Hour // longest time that use is kept
	minKept      = 31 * 24 * time.Hour  // what people look back at, however short the windows are
)

// Counter is the part of the engine that the ledger is written from.
type Counter interface {
	// Count tells what a shard's data of an epoch count of quotas, and the store's time, before which nothing is granted any more. Other data
	// are refused with ErrEpoch.
	Count(ctx context.Context, shard int, epoch int64, list []*delivery.Quota) (now int64, counted []Counted, err error)
}

// Counted is what the data count of a quota.
type Counted struct {
	delivery.Taken // Born is 0 if nothing is counted; Held and Since are not set
	Windows        []CountedWindow
}

// CountedWindow is what the data count of a window, in units and microseconds of the store's time.
type CountedWindow struct {
	ResetAt int64 // 0 unless it is a fixed one that was opened
	Units   int64
	Since   int64 // from when on it counts, or later
}

// Writer keeps the ledger true and small. Every second each daemon says from which data it takes, and every two seconds one writes what these
// have counted.
//
// A nil *Writer keeps nothing.
type Writer struct {
	opt   Options
	fence *Fence
	taken *Taken
	store Counter

	written map[string]delivery.Taken // what was written of each quota last
	until   map[int]int64             // up to when the ledger holds all of a shard
	turns   int
	pruned  time.Time
	joining retry.Outage // of saying that this daemon goes on
	writing retry.Outage // of writing what was counted
}

// NewWriter makes the writer of a ledger, nil without one.
func NewWriter(o Options, store Counter, fence *Fence, taken *Taken) *Writer {
	if o.Records == nil {
		return nil
	}
	w := &Writer{opt: o, fence: fence, taken: taken, store: store, written: map[string]delivery.Taken{}, until: map[int]int64{}}
	promauto.With(o.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_ledger_lag_seconds", Help: "How long the usage ledger has been out of reach, 0 while it is not.",
	}, func() float64 { return w.joining.Lasts().Seconds() })
	return w
}

// Run writes and prunes the ledger until ctx ends. It must end after the last call and refund.
func (w *Writer) Run(ctx context.Context) error {
	if w == nil {
		return nil
	}
	retry.Every(ctx, joinEvery, func(now time.Time) {
		w.turn(ctx)
		if w.leads() && now.Sub(w.pruned) >= pruneEvery && w.prune(ctx) {
			w.pruned = now
		}
	})
	w.finish(ctx)
	return nil
}

func (w *Writer) leads() bool { return w.opt.Leads == nil || w.opt.Leads() }

// turn says that this daemon goes on, and writes what was counted where that is up to it.
func (w *Writer) turn(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	w.turns++
	as, began := w.fence.takes(), time.Now()
	if len(as) == 0 {
		return
	}
	written, err := w.opt.Records.Join(call, w.opt.Node, as)
	if err != nil {
		if ctx.Err() == nil && w.joining.Failed() {
			w.opt.Logger.Warn("the usage ledger is out of reach; quotas with policy closed go on for two minutes", "error", err)
		}
		return
	}
	if away, over := w.joining.Worked(); over {
		w.opt.Logger.Info("the usage ledger is written again", "away", away.Round(time.Second))
	}
	for _, a := range as {
		until, inForce := written[a.Shard]
		if !inForce {
			w.opt.Logger.Warn("another daemon takes from other data of this shard; nothing is granted until that is settled",
				"shard", a.Shard, "incarnation", a.Epoch)
			w.fence.Lost(a.Shard, a.Epoch, false)
			continue
		}
		w.taken.written(a.Shard, a.Epoch, until, began)
		mine := w.leads() || a.At-until > overdueAfter.Microseconds() // nobody has written it
		if !mine || until < w.until[a.Shard] {
			w.writeAll(a.Shard) // others write it, or the data or the database are others
		}
		if mine && w.turns%2 == 0 {
			w.write(ctx, a.Shard, a.Epoch)
		}
	}
}

// write writes what a shard's data have counted, and returns whether the ledger holds all of it.
func (w *Writer) write(ctx context.Context, shard int, epoch int64) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	complete, err := w.writeShard(ctx, shard, epoch)
	if err == nil {
		w.writing.Worked()
	} else if ctx.Err() == nil && !errors.Is(err, ErrEpoch) && w.writing.Failed() {
		w.opt.Logger.Warn("what the quota store has counted is not in the ledger", "shard", shard, "error", err)
	}
	return complete && err == nil
}

func (w *Writer) writeShard(ctx context.Context, shard int, epoch int64) (complete bool, err error) {
	all := w.opt.Quotas()
	if all == nil {
		return false, nil
	}
	var quotas []*delivery.Quota
	for _, q := range all {
		if inLedger(q) && shards.Of(uint64(q.Shard), w.opt.Shards) == shard {
			quotas = append(quotas, q)
		}
	}
	var at int64
	var list []delivery.Taken
	var anchors []delivery.Anchor
	for part := range slices.Chunk(quotas, maxCounted) {
		now, counted, err := w.store.Count(ctx, shard, epoch, part)
		if err != nil {
			return false, fmt.Errorf("count the use of %d quotas: %w", len(part), err)
		}
		if at == 0 {
			at = now // of the first, so that all were counted at that time or later
		}
		for i, c := range counted {
			if last := w.written[part[i].ID]; c.Born == 0 || c.Born == last.Born && c.Units == last.Units {
				continue
			}
			for k, w := range c.Windows {
				is := part[i].Windows[k]
				if is.Span > longSpan && w.Units > c.Held {
					c.Held, c.Since = w.Units, w.Since
				}
				if w.ResetAt > now && anchored(is) {
					anchors = append(anchors, delivery.Anchor{Quota: c.Quota, Span: is.Span, ResetAt: w.ResetAt})
				}
			}
			list = append(list, c.Taken)
		}
	}
	if len(quotas) == 0 {
		return true, nil
	}
	complete, err = w.opt.Records.WriteTaken(ctx, shard, epoch, w.until[shard], at, list, anchors)
	if err != nil {
		return false, fmt.Errorf("write the use of %d quotas: %w", len(list), err)
	}
	if !complete {
		w.writeAll(shard) // the database may be an older one
		return false, nil
	}
	w.until[shard] = at
	for _, t := range list {
		w.written[t.Quota] = t
	}
	return true, nil
}

// writeAll has the next write of a shard list all quotas, not only those whose counts have changed.
func (w *Writer) writeAll(shard int) {
	clear(w.written)
	w.until[shard] = 0
}

// anchored reports whether the ledger keeps the window's reset.
func anchored(w delivery.Window) bool {
	return w.Algorithm == delivery.AlgorithmFixed && w.Anchor == "" && w.Span > longSpan
}

// finish writes what was counted, and says that this daemon takes nothing more. A daemon that does not get so far may have taken more,
// as far as others know.
func (w *Writer) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	for _, a := range w.fence.takes() {
		if !w.write(ctx, a.Shard, a.Epoch) {
			continue
		}
		if err := w.opt.Records.Leave(ctx, a.Shard, []string{w.opt.Node}, nil); err != nil {
			w.opt.Logger.Debug("others do not know that this daemon has stopped", "error", err)
		}
	}
}

// prune deletes minutes that are no longer needed or shown, and merges those of the last days. It returns false if these minutes are not
// known yet.
func (w *Writer) prune(ctx context.Context) bool {
	kept, oldest := time.Duration(0), int64(math.MaxInt64)
	for _, q := range w.opt.Quotas() {
		now, known := w.opt.Now(shards.Of(uint64(q.Shard), w.opt.Shards))
		if !known {
			return false
		}
		oldest = min(oldest, now)
		for _, window := range q.Windows {
			kept = max(kept, window.Span)
		}
	}
	if kept == 0 {
		return false // no quotas, or the catalog is not loaded yet
	}
	kept = min(max(kept+24*time.Hour, minKept), maxKept)
	ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	before := (oldest - kept.Microseconds()) / ledgerMinute
	if err := w.opt.Records.PruneUsage(ctx, before, max(before, oldest/ledgerMinute-int64(delivery.UsageKeptApart/time.Minute))); err != nil {
		w.opt.Logger.Debug("the usage ledger was not pruned; the next attempt is in an hour", "error", err)
	}
	return true
}
