package model

import (
	"github.com/pacer/pacer/internal/delivery"
)

// quota is the windows of one quota, by span, and the campaigns that compete for them.
type quota struct {
	rev     int64 // the newest revision seen
	part    int64 // hundredths of a unit granted and not counted yet, while only a part of the units counts
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

// opened is one window as the asker knows it.
type opened struct {
	*window
	period Period
}

// open brings the quota's windows to now and to the newest revision seen, and returns those of spec in their order.
func (q *quota) open(spec *delivery.Quota, now, widen int64) []opened {
	newer := spec.Revision >= q.rev
	if newer {
		q.rev = spec.Revision
	}
	list := make([]opened, len(spec.Windows))
	for i, s := range spec.Windows {
		w, period := q.windows[s.Span.Microseconds()], periodOf(s, now)
		if w == nil {
			w = newWindow(s.Span.Microseconds(), s.Algorithm)
			w.limit = s.Limit
			q.windows[w.span] = w
		}
		w.widen = max(w.widen, widen)
		w.expire(now, period)
		if newer {
			w.become(s.Algorithm, now, period)
			q.limit(w, s.Limit)
		}
		list[i] = opened{w, period}
	}
	return list
}

// limit sets a window's limit.
func (q *quota) limit(w *window, limit int64) {
	if limit == w.limit {
		return
	}
	if limit > w.limit {
		// There is room sooner than the rivals were told: nothing is kept for them until they come again.
		for _, r := range q.rivals {
			r.demand = 0
		}
	}
	w.limit = limit
	w.pace = delivery.Slot{At: w.pace.Micros()} // whose fraction was one of the limit
}

// periodOf is the calendar of a fixed window. Anchors are validated when they come in; one that cannot be read is
// first use.
func periodOf(w delivery.Window, now int64) Period {
	if w.Algorithm != delivery.AlgorithmFixed || w.Anchor == "" {
		return Period{}
	}
	a, _ := ParseAnchor(w.Anchor)
	return a.Period(now)
}

// Part is the percentage of units that a quota counts.
func Part(q *delivery.Quota) int64 { return 100 - q.Exempt }

// counted is how many units the quota counts of so many granted.
func (q *quota) counted(units, part int64) int64 { return (q.part + units*part) / 100 }

// granted notes that units were granted and returns how many of them count.
func (q *quota) granted(units, part int64) int64 {
	n := q.counted(units, part)
	q.part = (q.part + units*part) % 100
	return n
}

// fits is how many units can be granted while at most room of them count.
func (q *quota) fits(room, part int64) int64 {
	return min((100*(room+1)-1-q.part)/part, delivery.MaxGrant)
}

// refund gives units back to the windows they were granted from.
func (q *quota) refund(now int64, spec *delivery.Quota, g delivery.Grant) {
	units := g.Units * Part(spec) / 100
	for _, s := range spec.Windows {
		if w := q.windows[s.Span.Microseconds()]; w != nil && units > 0 {
			w.expire(now, periodOf(s, now))
			w.refund(g.GrantedAt, units)
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
