package model

import (
	"cmp"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maxBucket bounds the length of a bucket in the scripts' state. The rest counts in the bucket after it, so for longer.
	maxBucket = 4096 * (1<<24 - 1)
	minBucket = 1000 // microseconds: a ring of finer buckets would only be longer, never tighter than the widening
)

// bucket holds the units granted in [index*width, (index+1)*width).
type bucket struct{ index, units int64 }

// window counts units. Units count at their grant but are dispatched up to widen later.
//
// A sliding window has buckets of about a sixtieth of the span, see Step, the oldest counted in full until all of it has left the
// span, which the widening prolongs. A log is the same with buckets of a microsecond.
//
// A fixed window counts from its start to its reset. Units granted within the widening before the reset, its tail, may be dispatched after
// it, so they count in the next window as well.
type window struct {
	algorithm   string
	span, width int64
	limit       int64
	widen       int64
	narrowing   shrinkingWidth
	count       int64

	buckets []bucket // sliding, log: oldest first, none of them empty

	since, reset int64  // fixed: count is of units granted since then; 0 while none is open
	tail         int64  // fixed: units of count granted within widen before reset
	tailSince    int64  // fixed: when the first of the tail was granted; all granted later are of the tail, too
	period       Period // fixed: the calendar around now

	pace delivery.Slot // of a quota that is spent evenly: when the next unit may go
}

// shrinkingWidth is how a window gets narrower again: since a smaller widening than the window's was asked for, none as large was.
type shrinkingWidth struct {
	at    int64 // when all that was granted before that will have left; 0: the widening was asked for lately
	widen int64 // the largest that was asked for since
}

// widenTo makes sure that the window counts units for as long as they may be sent later than granted. Units granted under a larger
// widening are counted by that until they have left.
func (w *window) widenTo(widen, now int64) {
	if widen >= w.widen {
		w.widen, w.narrowing = widen, shrinkingWidth{}
		return
	}
	n := &w.narrowing
	if n.at == 0 {
		n.at = now + w.span + w.widen
	}
	if n.widen = max(n.widen, widen); now < n.at {
		return
	}
	w.widen, w.narrowing = n.widen, shrinkingWidth{}
	if widen < w.widen { // and it gets narrower still
		w.narrowing = shrinkingWidth{now + w.span + w.widen, widen}
	}
}

func newWindow(span int64, algorithm string) *window {
	w := &window{span: span, algorithm: cmp.Or(algorithm, delivery.AlgorithmSliding)}
	w.width = stepOf(w.algorithm, span)
	return w
}

// Step is how long a bucket of the window is, in microseconds: its units leave together, when the last of them may. 0: a fixed window has
// none.
//
// Sixty buckets of a sliding window are a little more than a span. Units that leave a used-up window are granted again at once. With
// buckets of a sixtieth of the span, that is a moment after the begin of the sixty-first. They would count for all of it, and a sixtieth
// of the limit would never be used. With longer buckets it is before the end of the sixtieth, if the ask and the dispatch are within the
// difference. The difference is 0.6 s, at most a 150th and at least a 1,000th of the span.
func Step(w delivery.Window) int64 { return stepOf(w.Algorithm, w.Span.Microseconds()) }

func stepOf(algorithm string, span int64) int64 {
	switch algorithm {
	case delivery.AlgorithmLog:
		return 1
	case delivery.AlgorithmFixed:
		return 0
	}
	return max(minBucket, (span+max(span/1000, min(span/150, 600_000))+59)/60)
}

// become changes the algorithm or the calendar and keeps the count. Of a period that ends at another time, units whose jobs may be sent
// after that count in the next one, too.
func (w *window) become(algorithm string, now int64) {
	if algorithm = cmp.Or(algorithm, delivery.AlgorithmSliding); algorithm == w.algorithm {
		if !w.period.Calendar() || w.reset == 0 {
			return
		}
		if _, reset := w.period.at(now); reset != w.reset {
			w.reset, w.tail = reset, 0
			if now >= reset-w.widen {
				w.tail, w.tailSince = w.count, w.since
			}
		}
		return
	}
	n := newWindow(w.span, algorithm)
	n.limit, n.widen, n.narrowing, n.pace, n.period = w.limit, w.widen, w.narrowing, w.pace, w.period
	n.seed(w, now)
	*w = *n
}

// seed counts recent grants in a new window, as far as another window of the quota holds them, or itself before it was changed. Units of
// a bucket count as if granted at its end. Those of a fixed window, which has no times, count as if granted now.
func (w *window) seed(from *window, now int64) {
	if from == nil {
		return
	}
	if from.algorithm == delivery.AlgorithmFixed {
		if from.count > 0 {
			w.debit(now, from.count)
		}
		return
	}
	begin, total := now-w.span, int64(0)
	if w.period.Calendar() {
		begin, _ = w.period.at(now)
	}
	for _, b := range from.buckets {
		at := min(now, (b.index+1)*from.width-1)
		switch {
		case w.algorithm == delivery.AlgorithmFixed && at >= begin-w.widen:
			total += b.units
		case w.algorithm != delivery.AlgorithmFixed && w.leaves(bucket{index: at / w.width}) > now:
			w.debit(at, b.units)
		}
	}
	if total > 0 {
		w.debit(now, total)
	}
}

// leaves is when a bucket falls out: when its end lies a span, and the widening, in the past.
func (w *window) leaves(b bucket) int64 { return (b.index+1)*w.width + w.span + w.widen }

// expire removes units that have left the window.
func (w *window) expire(now int64) {
	if w.algorithm == delivery.AlgorithmFixed {
		w.roll(now)
		return
	}
	for len(w.buckets) > 0 && w.leaves(w.buckets[0]) <= now {
		w.count -= w.buckets[0].units
		w.buckets = w.buckets[1:]
	}
}

// roll applies resets up to now. At a reset the tail becomes the count of the next window.
func (w *window) roll(now int64) {
	if w.reset == 0 || now < w.reset {
		return
	}
	start, next := w.reset, w.reset+w.span
	if w.period.Calendar() {
		start, next = w.period.at(now)
	}
	w.count, w.tail = w.tail, 0
	if start > w.reset || now >= next {
		w.count = 0 // a whole period went by
	}
	switch {
	case w.count > 0:
		w.since, w.reset = w.tailSince, next
	case w.period.Calendar():
		w.since, w.reset = start, next
	default:
		w.since, w.reset = 0, 0
	}
}

func (w *window) remaining() int64 { return max(0, w.limit-w.count) }

// debit counts units granted now; expire came before.
func (w *window) debit(now, units int64) {
	w.count += units
	if w.algorithm == delivery.AlgorithmFixed {
		w.open(now)
		if w.tail == 0 {
			w.tailSince = now
		}
		if now >= w.reset-w.widen || w.tail > 0 {
			w.tail += units
		}
		return
	}
	index := now / w.width
	if n := len(w.buckets); n > 0 {
		newest := &w.buckets[n-1]
		if newest.index >= index {
			newest.units += units
			return
		}
		if rest := newest.units - maxBucket; rest > 0 {
			newest.units -= rest
			units += rest
		}
	}
	w.buckets = append(w.buckets, bucket{index, units})
}

// open begins a fixed window unless one is open.
func (w *window) open(now int64) {
	if w.reset > 0 {
		return
	}
	w.since, w.reset = now, now+w.span
	if w.period.Calendar() {
		w.since, w.reset = w.period.at(now)
	}
}

// refund gives units back that were granted at a time, if they still count where they were counted.
func (w *window) refund(grantedAt, units int64) {
	if w.algorithm == delivery.AlgorithmFixed {
		if w.reset == 0 || grantedAt < w.since || grantedAt >= w.reset {
			return
		}
		w.count -= min(units, w.count)
		if grantedAt >= w.tailSince {
			w.tail -= min(units, w.tail)
		}
		w.tail = min(w.tail, w.count)
		return
	}
	for i := range w.buckets {
		b := &w.buckets[i]
		if b.index != grantedAt/w.width {
			continue
		}
		units = min(units, b.units)
		b.units -= units
		w.count -= units
		if b.units == 0 {
			w.buckets = append(w.buckets[:i:i], w.buckets[i+1:]...)
		}
		return
	}
}

// freeAt is when units can be granted if nothing else is granted before. There is no room for them now, and they do not exceed the limit.
func (w *window) freeAt(units int64) int64 {
	if w.algorithm == delivery.AlgorithmFixed {
		return w.reset
	}
	lack := w.count + units - w.limit
	for _, b := range w.buckets {
		if lack -= b.units; lack <= 0 {
			return w.leaves(b)
		}
	}
	panic("model: a window lacks more units than were granted")
}

// resetAt is when the window is full again if nothing more is granted.
func (w *window) resetAt(now int64) int64 {
	switch n := len(w.buckets); {
	case w.count == 0:
		return now
	case w.algorithm == delivery.AlgorithmFixed:
		return w.reset
	default:
		return w.leaves(w.buckets[n-1])
	}
}

func (w *window) state(now int64, quota string, i int) delivery.WindowState {
	s := delivery.WindowState{Quota: quota, Window: i, Remaining: w.remaining(), ResetAt: w.resetAt(now)}
	if s.Remaining == 0 && w.limit > 0 {
		s.FreeAt = w.freeAt(1)
	}
	return s
}

// Even spending: the window is a timeline of its own, whose slots are a limit's part of the span apart; for a fixed
// window, a part of what is left of it.

// pacing is the timeline from its first free slot on. A slot that was kept for the asker keeps its place until its part of the span is
// over: what follows it is not later for that.
func (w *window) pacing(now int64, kept bool) (delivery.Slot, delivery.Rate) {
	at := w.pace
	if at.At < now && (!kept || at.At <= now-w.span/max(1, w.limit)) {
		at = delivery.Slot{At: now}
	}
	if w.algorithm != delivery.AlgorithmFixed || w.reset == 0 {
		return at, delivery.Rate{N: w.limit, Per: w.span}
	}
	return delivery.Slot{At: at.At}, delivery.Rate{N: w.remaining(), Per: max(0, w.reset-at.At)}
}

// paced is how many of the units that remain begin up to the horizon.
func (w *window) paced(now, horizon int64, kept bool) int64 {
	room := min(w.remaining(), delivery.MaxGrant)
	if room == 0 {
		return 0
	}
	at, rate := w.pacing(now, kept)
	return at.CountUntil(now+horizon, rate, room)
}

// spend moves the pace past units; before they are debited.
func (w *window) spend(now, units int64, kept bool) {
	if w.remaining() == 0 || units == 0 {
		return
	}
	at, rate := w.pacing(now, kept)
	w.pace = at.Advance(units, rate)
}
