package model

import (
	"github.com/pacer/pacer/internal/delivery"
)

const (
	ringBuckets = 60
	minBucket   = 1000 // microseconds: a ring of finer buckets would only be longer, never tighter than the widening
)

// quota is the windows of one quota, by span, and the campaigns that compete for them.
type quota struct {
	windows map[int64]*window
	rivals  []*rival // in the order in which they came
}

// rival is a campaign that asked for units of the quota lately.
type rival struct {
	campaign string
	seen     int64
	// due is when it was told to come back (0: not soon), and demand how many units are kept for it until then, as
	// long as others have been served more. After being cut short by the quota (until cut), that is all it can use
	// in a span: windows give back in bursts what was taken in bursts, and a slow campaign would find each burst
	// over before it had its share. A campaign that has not been cut short for a span gets what it wants anyway,
	// and needs no more kept than it can use before it comes again.
	due, demand, cut int64
	cost             int64 // virtual service per unit: costScale / priority weight
	service          int64 // virtual service received, comparable between rivals only
}

// bucket holds the units granted in [index*width, (index+1)*width).
type bucket struct{ index, units int64 }

// window is a sliding window: buckets of a sixtieth of the span, the oldest counted in full until all of it has
// left the span. Units count at their grant but are dispatched up to widen later, so the window is that much
// longer than the span.
type window struct {
	span, width int64
	limit, rev  int64
	widen       int64
	count       int64
	buckets     []bucket // oldest first, none of them empty
}

func newWindow(span int64) *window {
	return &window{span: span, width: max(minBucket, (span+ringBuckets-1)/ringBuckets)}
}

// window returns the window of the quota, opening it if there is none, with the limit of the newest revision.
func (q *quota) window(w delivery.Window, rev int64) *window {
	span := w.Span.Microseconds()
	held := q.windows[span]
	if held == nil {
		held = newWindow(span)
		q.windows[span] = held
	}
	if rev >= held.rev {
		if w.Limit > held.limit {
			// There is room sooner than the rivals were told: nothing is kept for them until they come again.
			for _, r := range q.rivals {
				r.demand = 0
			}
		}
		held.rev, held.limit = rev, w.Limit
	}
	return held
}

// leaves is when a bucket falls out: when its end lies a span, and the widening, in the past.
func (w *window) leaves(b bucket) int64 { return (b.index+1)*w.width + w.span + w.widen }

func (w *window) expire(now int64) {
	for len(w.buckets) > 0 && w.leaves(w.buckets[0]) <= now {
		w.count -= w.buckets[0].units
		w.buckets = w.buckets[1:]
	}
}

func (w *window) remaining() int64 { return max(0, w.limit-w.count) }

func (w *window) debit(now, units int64) {
	index := now / w.width
	w.count += units
	if n := len(w.buckets); n > 0 && w.buckets[n-1].index == index {
		w.buckets[n-1].units += units
		return
	}
	w.buckets = append(w.buckets, bucket{index, units})
}

// freeAt is when units, of which there is no room now and which do not exceed the limit, can be granted if nothing
// is granted before.
func (w *window) freeAt(units int64) int64 {
	lack := w.count + units - w.limit
	for _, b := range w.buckets {
		if lack -= b.units; lack <= 0 {
			return w.leaves(b)
		}
	}
	panic("model: a window lacks more units than were granted")
}

func (w *window) state(now int64, quota string, i int) delivery.WindowState {
	reset := now
	if n := len(w.buckets); n > 0 {
		reset = w.leaves(w.buckets[n-1])
	}
	return delivery.WindowState{Quota: quota, Window: i, Remaining: w.remaining(), ResetAt: reset}
}

// refund gives units back to the bucket they were granted from, if that still counts.
func (q *quota) refund(now int64, spec *delivery.Quota, g delivery.Grant) {
	for _, s := range spec.Windows {
		w := q.windows[s.Span.Microseconds()]
		if w == nil {
			continue
		}
		w.expire(now)
		for i := range w.buckets {
			b := &w.buckets[i]
			if b.index != g.GrantedAt/w.width {
				continue
			}
			units := min(g.Units, b.units)
			b.units -= units
			w.count -= units
			if b.units == 0 {
				w.buckets = append(w.buckets[:i:i], w.buckets[i+1:]...)
			}
			break
		}
	}
}

// active tells whether room is kept for the rival.
func (r *rival) active(now, grace int64) bool { return r.demand > 0 && now <= r.due+grace }

// join finds the campaign among the rivals, forgetting those that have gone, and places a new one at the end.
// grace is how late a rival may be for its appointment.
func (q *quota) join(now int64, campaign string, grace int64) *rival {
	var self *rival
	kept := q.rivals[:0]
	for _, r := range q.rivals {
		if r.campaign == campaign {
			self = r
		} else if now-r.seen > second && now > r.due+grace {
			continue
		}
		kept = append(kept, r)
	}
	q.rivals = kept
	if self != nil {
		return self
	}
	if len(q.rivals) >= maxRivals {
		oldest := 0
		for i, r := range q.rivals {
			if r.seen < q.rivals[oldest].seen {
				oldest = i
			}
		}
		q.rivals = append(q.rivals[:oldest], q.rivals[oldest+1:]...)
	}
	self = &rival{campaign: campaign}
	q.rivals = append(q.rivals, self)
	return self
}

// level keeps service counters small: only their differences matter.
func (q *quota) level() {
	if len(q.rivals) == 0 {
		return
	}
	low := q.rivals[0].service
	for _, r := range q.rivals {
		low = min(low, r.service)
	}
	for _, r := range q.rivals {
		r.service -= low
	}
}
