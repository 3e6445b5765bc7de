package model

import (
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Bounds of what can be counted exactly.
const (
	MaxSpan  = 366 * 24 * time.Hour
	MaxLimit = int64(1_000_000_000_000_000) // as in the schema; far below 2^53, so that sums stay exact in Lua
)

// quota is the windows of one quota, by span, and those who compete for them.
type quota struct {
	rev     int64 // the newest revision seen
	windows map[int64]*window
	rivals  rivals
}

// open brings the quota's windows to now and to the newest revision seen, and returns those of spec in their order. The
// windows of an older revision that the quota does not have any more are returned empty, and not kept.
func (q *quota) open(spec *delivery.Quota, now, widen int64) []*window {
	newer := spec.Revision >= q.rev
	if newer {
		q.rev = spec.Revision
	}
	before := maps.Clone(q.windows)
	list := make([]*window, len(spec.Windows))
	for i, s := range spec.Windows {
		w := q.windows[s.Span.Microseconds()]
		if w == nil {
			w = newWindow(s.Span.Microseconds(), s.Algorithm)
			w.limit, w.period = s.Limit, PeriodOf(s, now)
			if newer {
				w.widen = widen
				w.seed(longer(before, now, w.span), now)
				q.windows[w.span] = w
			}
		}
		if widen > 0 {
			w.widenTo(widen, now)
		}
		w.period = PeriodOf(s, now)
		w.expire(now)
		if newer {
			w.become(s.Algorithm, now)
			q.limit(w, s.Limit)
		}
		list[i] = w
	}
	if newer {
		maps.DeleteFunc(q.windows, func(_ int64, w *window) bool { return !slices.Contains(list, w) })
	}
	return list
}

// copied returns the windows of a quota, which may be nil, as a quota of its own without rivals.
func (q *quota) copied() *quota {
	c := &quota{windows: map[int64]*window{}}
	if q == nil {
		return c
	}
	c.rev = q.rev
	for span, w := range q.windows {
		held := *w
		held.buckets = slices.Clone(w.buckets)
		c.windows[span] = &held
	}
	return c
}

// longer is the window that holds most of what was granted in the last span: the shortest of those as long that hold the times of their
// units, else the one that counts from the earliest time on.
func longer(windows map[int64]*window, now, span int64) (best *window) {
	earliest := now
	for _, size := range slices.Sorted(maps.Keys(windows)) {
		w, from := windows[size], now-size
		switch {
		case w.algorithm == delivery.AlgorithmFixed && w.reset <= now:
			continue
		case w.algorithm == delivery.AlgorithmFixed:
			from = w.since
		case size >= span:
			return w
		}
		if from <= earliest {
			best, earliest = w, from
		}
	}
	return best
}

// limit sets a window's limit.
func (q *quota) limit(w *window, limit int64) {
	if limit == w.limit {
		return
	}
	if limit > w.limit {
		// There is room sooner than the rivals were told: nothing is kept for them until they ask again.
		for _, r := range q.rivals {
			r.demand = 0
		}
	}
	w.limit = limit
	w.pace = delivery.Slot{At: w.pace.Micros()} // whose fraction was one of the limit
}

// PeriodOf is the calendar of a fixed window. Anchors are validated when they come in; one that cannot be read is
// first use.
func PeriodOf(w delivery.Window, now int64) Period {
	if w.Algorithm != delivery.AlgorithmFixed || w.Anchor == "" {
		return Period{}
	}
	a, _ := ParseAnchor(w.Anchor)
	return a.Period(now)
}

// refund gives units back to the windows they were granted from.
func (q *quota) refund(now int64, spec *delivery.Quota, g delivery.Grant) {
	if !spec.Covers(g.From.Campaign.ID) {
		return
	}
	for _, s := range spec.Windows {
		if w := q.windows[s.Span.Microseconds()]; w != nil {
			w.period = PeriodOf(s, now)
			w.expire(now)
			w.refund(g.GrantedAt, g.Units)
		}
	}
}
