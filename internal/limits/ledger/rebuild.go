package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// rebuildBatch is how many quotas are read from the ledger at once, a month of one is 43,200 minutes, and rebuildReaders how many
	// batches.
	rebuildBatch, rebuildReaders = 8, 8
	// rebuildTimeout bounds the reading of one batch.
	rebuildTimeout = 30 * time.Second
	// clockSlack is how far ahead of the lost store's clock the new one may be, and how long before a minute units may be used that are
	// written as used in it.
	clockSlack = 10 * second
)

// restore puts the windows in place, unless nothing was recorded before: then the store's data is right.
func (r *recovery) restore(ctx context.Context, lost bool, own delivery.Incarnation) error {
	var quotas []Restored
	if lost {
		err := r.awaitReports(ctx)
		if err != nil {
			return fmt.Errorf("complete the usage ledger before shard %d is rebuilt: %w", r.shard, err)
		}
		// The new data have no timelines: a daemon that asks would be granted slots of the lost data that another one still holds.
		if err = retry.Sleep(ctx, r.opt.Horizon()); err != nil {
			return err
		}
		if _, _, err = r.compare(ctx); err != nil { // other daemons have taken from other data until now
			return err
		}
		if quotas, err = r.rebuildAndRenew(ctx, &own); err != nil {
			return fmt.Errorf("rebuild shard %d: %w", r.shard, err)
		}
	}
	if err := r.store.Restore(ctx, r.shard, own.Epoch, quotas); err != nil {
		return fmt.Errorf("restore shard %d: %w", r.shard, err)
	}
	return nil
}

// rebuildAndRenew computes the counts of the windows. Meanwhile it puts one record after the other in place of its own, so that others wait.
func (r *recovery) rebuildAndRenew(ctx context.Context, own *delivery.Incarnation) (quotas []Restored, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	of, next := *own, *own
	go func() {
		var err error
		quotas, err = r.rebuild(ctx, r.shard, r.now, of)
		done <- err
	}()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case err = <-done:
			return quotas, err
		case <-tick.C:
		}
		if next == *own { // else the last one is tried again: it may be recorded, and the answer was lost
			next.Epoch = newEpoch(own.Epoch)
			r.own = next.Epoch
		}
		call, end := context.WithTimeout(ctx, stepTimeout)
		inForce, err := r.opt.Records.ReplaceEpoch(call, r.shard, own.Epoch, next, causeMissing)
		end()
		switch {
		case err == nil && inForce == next.Epoch:
			*own = next
		case err == nil:
			cancel()
			<-done               //nolint:errcheck // of a context that has ended
			return nil, ErrEpoch // another one is recovering
		}
	}
}

// rebuild computes the counts of the windows of a shard's quotas at the store time now, never too low. The ledger's minutes are by the
// store's clock: what it holds from before a jump forward was used later than it says.
func (g *Fence) rebuild(ctx context.Context, shard int, now int64, of delivery.Incarnation) ([]Restored, error) {
	quotas := g.quotasOf(shard, (*delivery.Quota).Stored)
	if quotas == nil {
		return nil, errNotLoaded
	}
	restored := make([][]Restored, (len(quotas)+rebuildBatch-1)/rebuildBatch)
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(rebuildReaders)
	for i := range restored {
		reading.Go(func() (err error) {
			restored[i], err = g.rebuildBatch(ctx, quotas[i*rebuildBatch:min((i+1)*rebuildBatch, len(quotas))], now, of)
			return err
		})
	}
	err := reading.Wait()
	return slices.Concat(restored...), err
}

func (g *Fence) rebuildBatch(ctx context.Context, quotas []*delivery.Quota, now int64, of delivery.Incarnation) ([]Restored, error) {
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	var ids []string
	longest := time.Duration(0)
	for _, q := range quotas {
		ids = append(ids, q.ID)
		for _, w := range q.Windows {
			longest = max(longest, w.Span)
		}
	}
	usage := map[string][]Dated{}
	anchors := map[delivery.Anchor]int64{} // by quota and span
	if longest > delivery.LongSpan {
		since := (now-longest.Microseconds()-bucketWidth(longest)-clockSlack-of.Ahead)/ledgerMinute - 1
		minutes, err := g.opt.Records.Usage(ctx, ids, since)
		if err != nil {
			return nil, fmt.Errorf("read the usage ledger: %w", err)
		}
		for _, m := range minutes {
			if m.Units > 0 {
				usage[m.Quota] = append(usage[m.Quota], Dated{dateOf(m.Minute, now, of), m.Units})
			}
		}
		known, err := g.opt.Records.Anchors(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("read the anchors of windows: %w", err)
		}
		for _, a := range known {
			anchors[delivery.Anchor{Quota: a.Quota, Span: a.Span}] = a.ResetAt
		}
	}
	restored := make([]Restored, len(quotas))
	for i, q := range quotas {
		restored[i].Quota = q
		slices.SortStableFunc(usage[q.ID], func(a, b Dated) int { return cmp.Compare(a.At, b.At) }) // a jump has changed the order
		for _, w := range q.Windows {
			anchor := anchors[delivery.Anchor{Quota: q.ID, Span: w.Span}]
			if now < of.JumpedAt+2*w.Span.Microseconds() || anchor > now+w.Span.Microseconds() {
				anchor = 0 // it is by the clock before the jump
			}
			restored[i].Windows = append(restored[i].Windows, rebuildWindow(w, usage[q.ID], anchor, now))
		}
	}
	return restored, nil
}

// dateOf is when the units of a minute count as used: at its end, or now if that is earlier. The store's clock may
// have jumped since, so that less time has passed than it shows.
func dateOf(minute, now int64, of delivery.Incarnation) int64 {
	at := (minute+1)*ledgerMinute + clockSlack
	if minute*ledgerMinute <= of.JumpedAt {
		at += of.Ahead
	}
	return min(at, now)
}

// bucketWidth is that of a sliding window of the span: no other kind has longer buckets.
func bucketWidth(span time.Duration) int64 { return model.Step(delivery.Window{Span: span}) }

// rebuildWindow computes a window's count at now. usage is that of its quota, oldest first; anchor is the latest
// known reset of a fixed window that began at its first use, 0 for none.
func rebuildWindow(w delivery.Window, usage []Dated, anchor, now int64) Window {
	period := model.PeriodOf(w, now)
	switch {
	case w.Span <= delivery.LongSpan:
		return fullWindow(w, period, now)
	case w.Algorithm != delivery.AlgorithmFixed:
		return Window{Units: compact(usage, now-w.Span.Microseconds(), bucketWidth(w.Span))}
	case period.Calendar():
		return fixedWindow(usage, period[0], period[1])
	case anchor > now:
		return fixedWindow(usage, anchor-w.Span.Microseconds(), anchor)
	}
	// It began after the known reset, at an unknown time: its end cannot be later than that of a window that
	// began with the last use.
	r := fixedWindow(usage, max(anchor, now-w.Span.Microseconds()), 0)
	if len(r.Units) > 0 {
		r.ResetAt = r.Units[0].At + w.Span.Microseconds()
	}
	return r
}

// fullWindow lets a short window wait for its span to pass, or for its reset.
func fullWindow(w delivery.Window, period model.Period, now int64) Window {
	if w.Limit == 0 {
		return Window{}
	}
	r := Window{Units: []Dated{{now, w.Limit}}}
	switch {
	case period.Calendar():
		r.ResetAt = period[1]
	case w.Algorithm == delivery.AlgorithmFixed:
		r.ResetAt = now + w.Span.Microseconds()
	}
	return r
}

// fixedWindow counts the use since the start, dated at the last use.
func fixedWindow(usage []Dated, start, resetAt int64) Window {
	var last Dated
	for _, u := range usage {
		if u.At > start {
			last.At = u.At
			last.Units += u.Units
		}
	}
	if last.Units == 0 {
		return Window{}
	}
	return Window{Units: []Dated{last}, ResetAt: resetAt}
}

// compact drops use before since, and merges use in the same bucket, dated at the last of it.
func compact(usage []Dated, since, width int64) []Dated {
	var list []Dated
	for _, u := range usage {
		if u.At < since-width {
			continue
		}
		if n := len(list); n > 0 && list[n-1].At/width == u.At/width {
			list[n-1].At = u.At
			list[n-1].Units += u.Units
			continue
		}
		list = append(list, u)
	}
	return list
}
