package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	// rebuildBatch is how many quotas are read from the ledger at once: a month of one is 43,200 minutes.
	rebuildBatch = 8
	// rebuildTimeout bounds the reading of one batch.
	rebuildTimeout = 30 * time.Second
	// clockSlack is how far ahead of the lost store's clock the new one may be.
	clockSlack = 5 * second
)

// rebuild works out what the windows of a shard's quotas hold at the store time now, never less than they do.
func (g *guard) rebuild(ctx context.Context, shard int, now int64) ([]restoredQuota, error) {
	all := g.quotas()
	if all == nil {
		return nil, errors.New("the catalog is not loaded yet")
	}
	var quotas []*delivery.Quota
	for _, q := range all {
		if shardOf(q, len(g.shards)) == shard && len(q.Windows) > 0 && q.Mode != delivery.ModeEventual {
			quotas = append(quotas, q)
		}
	}
	var restored []restoredQuota
	for len(quotas) > 0 {
		n := min(len(quotas), rebuildBatch)
		batch, err := g.rebuildBatch(ctx, quotas[:n], now)
		if err != nil {
			return nil, err
		}
		restored, quotas = append(restored, batch...), quotas[n:]
	}
	return restored, nil
}

func (g *guard) rebuildBatch(ctx context.Context, quotas []*delivery.Quota, now int64) ([]restoredQuota, error) {
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
	usage := map[string][]dated{}
	anchors := map[delivery.Anchor]int64{} // by quota and span
	if longest > longSpan {
		since := (now-longest.Microseconds()-bucketWidth(longest)-clockSlack)/ledgerMinute - 1
		minutes, err := g.ledger.Usage(ctx, ids, since)
		if err != nil {
			return nil, fmt.Errorf("read the usage ledger: %w", err)
		}
		for _, m := range minutes {
			if m.Units > 0 {
				usage[m.Quota] = append(usage[m.Quota], dated{dateOf(m.Minute, now), m.Units})
			}
		}
		known, err := g.ledger.Anchors(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("read the anchors of windows: %w", err)
		}
		for _, a := range known {
			anchors[delivery.Anchor{Quota: a.Quota, Span: a.Span}] = a.ResetAt
		}
	}
	restored := make([]restoredQuota, len(quotas))
	for i, q := range quotas {
		restored[i].quota = q
		for _, w := range q.Windows {
			anchor := anchors[delivery.Anchor{Quota: q.ID, Span: w.Span}]
			restored[i].windows = append(restored[i].windows, rebuildWindow(w, usage[q.ID], anchor, now))
		}
	}
	return restored, nil
}

// dateOf is when the units of a minute count as used: at its end, or now if that is still to come. A new store's clock
// may be ahead of the old one's, so that less of its time has passed.
func dateOf(minute, now int64) int64 { return min((minute+1)*ledgerMinute+clockSlack, now) }

// bucketWidth is that of a sliding window.
func bucketWidth(span time.Duration) int64 { return (span.Microseconds() + 59) / 60 }

// rebuildWindow works out what a window holds at now. usage is that of its quota, oldest first; anchor is the latest
// known reset of a fixed window that began at its first use, 0 for none.
func rebuildWindow(w delivery.Window, usage []dated, anchor, now int64) restoredWindow {
	period := calendarOf(w, now)
	switch {
	case w.Span <= longSpan:
		return fullWindow(w, period, now)
	case w.Algorithm != delivery.AlgorithmFixed:
		return restoredWindow{units: compact(usage, now-w.Span.Microseconds(), bucketWidth(w.Span))}
	case period.Calendar():
		return fixedWindow(usage, period[0], period[1])
	case anchor > now:
		return fixedWindow(usage, anchor-w.Span.Microseconds(), anchor)
	}
	// It began after the known reset, nobody knows when: its end cannot be later than that of one that began with
	// the last use.
	r := fixedWindow(usage, max(anchor, now-w.Span.Microseconds()), 0)
	if len(r.units) > 0 {
		r.resetAt = r.units[0].at + w.Span.Microseconds()
	}
	return r
}

// calendarOf is the calendar of a fixed window, the zero one for first use and for other algorithms.
func calendarOf(w delivery.Window, now int64) model.Period {
	if w.Algorithm != delivery.AlgorithmFixed {
		return model.Period{}
	}
	a, err := model.ParseAnchor(w.Anchor)
	if err != nil {
		return model.Period{} // as in the model, where the catalog let it through
	}
	return a.Period(now)
}

// fullWindow lets a short window wait for its span to pass, or for its reset.
func fullWindow(w delivery.Window, period model.Period, now int64) restoredWindow {
	if w.Limit == 0 {
		return restoredWindow{}
	}
	r := restoredWindow{units: []dated{{now, w.Limit}}}
	switch {
	case period.Calendar():
		r.resetAt = period[1]
	case w.Algorithm == delivery.AlgorithmFixed:
		r.resetAt = now + w.Span.Microseconds()
	}
	return r
}

// fixedWindow counts what was used since the start, as of the last use.
func fixedWindow(usage []dated, start, resetAt int64) restoredWindow {
	var last dated
	for _, u := range usage {
		if u.at > start {
			last.at = u.at
			last.units += u.units
		}
	}
	if last.units == 0 {
		return restoredWindow{}
	}
	return restoredWindow{units: []dated{last}, resetAt: resetAt}
}

// compact leaves out what was used before since, and counts what was used in the same bucket as of the last of it.
func compact(usage []dated, since, width int64) []dated {
	var list []dated
	for _, u := range usage {
		if u.at < since-width {
			continue
		}
		if n := len(list); n > 0 && list[n-1].at/width == u.at/width {
			list[n-1].at = u.at
			list[n-1].units += u.units
			continue
		}
		list = append(list, u)
	}
	return list
}
