package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// joinEvery is how often a daemon says that it goes on. In every second turn it writes what the store counts. Each takes writeTimeout at most.
	joinEvery, writeTimeout = time.Second, 2 * time.Second
	// overdueAfter is how old the ledger may be before any daemon writes it, not only the one that leads.
	overdueAfter = 10 * time.Second
	maxCounted   = 32 // quotas that are counted at once
)

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

// writer keeps the ledger true. Every second each daemon says from which data it takes, and every two seconds one writes what these
// have counted.
type writer struct {
	*Fence
	books []book // by shard
	turns int
}

// book is what is known of what the ledger holds of a shard.
type book struct {
	counts map[string]delivery.Taken // what was written of each quota last; nil: the next write lists all quotas
	until  int64                     // up to when the ledger holds all; 0 with counts nil
	outage retry.Outage              // of writing
}

// run writes the ledger until ctx ends.
func (w *writer) run(ctx context.Context) {
	retry.Every(ctx, joinEvery, func(time.Time) { w.turn(ctx) })
	w.finish(ctx)
}

// turn says that this daemon goes on, and writes what was counted where that is up to it.
func (w *writer) turn(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	w.turns++
	as, began := w.takes(), time.Now()
	if len(as) == 0 {
		return
	}
	written, err := w.opt.Records.Join(call, w.opt.Node, as)
	if err != nil {
		if ctx.Err() == nil && w.away.Failed() {
			w.opt.Logger.Warn("the usage ledger is out of reach; quotas with policy closed go on for two minutes", "error", err)
		}
		return
	}
	if away, over := w.away.Worked(); over {
		w.opt.Logger.Info("the usage ledger is written again", "away", away.Round(time.Second))
	}
	for _, a := range as {
		until, inForce := written[a.Shard]
		if !inForce {
			w.opt.Logger.Warn("another daemon takes from other data of this shard; nothing is granted until that is settled",
				"shard", a.Shard, "incarnation", a.Epoch)
			w.Lost(a.Shard, a.Epoch, false)
			continue
		}
		w.written(a.Shard, a.Epoch, until, began)
		mine := w.leads() || a.At-until > overdueAfter.Microseconds() // nobody has written it
		if b := &w.books[a.Shard]; !mine || until < b.until {
			b.counts, b.until = nil, 0 // others write it, or the data or the database are others
		}
		if mine && w.turns%2 == 0 {
			w.write(ctx, a.Shard, a.Epoch)
		}
	}
}

// write writes what a shard's data have counted, and returns whether the ledger holds all of it.
func (w *writer) write(ctx context.Context, shard int, epoch int64) bool {
	call, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	complete, err := w.writeShard(call, shard, epoch)
	if b := &w.books[shard]; err == nil {
		b.outage.Worked()
	} else if ctx.Err() == nil && !errors.Is(err, ErrEpoch) && b.outage.Failed() {
		w.opt.Logger.Warn("what the quota store has counted is not in the ledger", "shard", shard, "error", err)
	}
	return complete && err == nil
}

func (w *writer) writeShard(ctx context.Context, shard int, epoch int64) (complete bool, err error) {
	quotas := w.quotasOf(shard, inLedger)
	if len(quotas) == 0 {
		return quotas != nil, nil
	}
	var at int64
	var list []delivery.Taken
	var anchors []delivery.Anchor
	b, counts := &w.books[shard], make(map[string]delivery.Taken, len(quotas))
	for part := range slices.Chunk(quotas, maxCounted) {
		now, counted, err := w.store.Count(ctx, shard, epoch, part)
		if err != nil {
			return false, fmt.Errorf("count the use of %d quotas: %w", len(part), err)
		}
		if at == 0 {
			at = now // of the first, so that all were counted at that time or later
		}
		for i, c := range counted {
			last := b.counts[c.Quota]
			if counts[c.Quota] = c.Taken; c.Born == 0 || c.Born == last.Born && c.Units == last.Units {
				continue
			}
			for k, window := range c.Windows {
				is := part[i].Windows[k]
				if is.Span > delivery.LongSpan && window.Units > c.Held {
					c.Held, c.Since = window.Units, window.Since
				}
				if window.ResetAt > now && anchored(is) {
					anchors = append(anchors, delivery.Anchor{Quota: c.Quota, Span: is.Span, ResetAt: window.ResetAt})
				}
			}
			list = append(list, c.Taken)
		}
	}
	complete, err = w.opt.Records.WriteTaken(ctx, shard, epoch, b.until, at, list, anchors)
	if err != nil {
		return false, fmt.Errorf("write the use of %d quotas: %w", len(list), err)
	}
	if b.counts, b.until = counts, at; !complete {
		b.counts, b.until = nil, 0 // the database may be an older one
	}
	return complete, nil
}

// anchored reports whether the ledger keeps the window's reset.
func anchored(w delivery.Window) bool {
	return w.Algorithm == delivery.AlgorithmFixed && w.Anchor == "" && w.Span > delivery.LongSpan
}

// finish writes what was counted, and says that this daemon takes nothing more. A daemon that does not get so far may have taken more,
// as far as others know.
func (w *writer) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	for _, a := range w.takes() {
		if !w.write(ctx, a.Shard, a.Epoch) {
			continue
		}
		if err := w.opt.Records.Leave(ctx, a.Shard, []string{w.opt.Node}, nil); err != nil {
			w.opt.Logger.Debug("others do not know that this daemon has stopped", "error", err)
		}
	}
}
