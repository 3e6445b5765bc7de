package model

import (
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// keeps reports whether units of a quota are kept for the campaign until it asks again. They are not if another limit makes it wait
// for more than a second or, if that limit is another quota, for more than a span: what others take now will be there again by
// then. Nor are they if another quota has units and keeps all of them for others: of two campaigns that each keep what the other
// needs, none would ever be sent.
func (t *taking) keeps(q *demand, units, slots int64) bool {
	patience := second
	if units < slots {
		patience = max(second, q.tight.span)
	}
	if t.out.NextAt > max(t.now, q.next)+patience {
		return false
	}
	return units > 0 || !slices.ContainsFunc(t.binds, func(p *demand) bool { return p != q && p.share == 0 && p.kept > 0 })
}

// uses is how many units of a quota the campaign can use before it asks again or, while it counts as cut short, in a span.
// Where another limit makes it wait, that is no more than falls to it by each of its quotas.
func (t *taking) uses(q *demand, units, want int64) int64 {
	next, spacing := t.out.NextAt, t.tl.rate.Spacing()
	use := next - t.now + t.grace()
	if t.now <= q.self.cut+q.tight.span {
		use = q.tight.span
	}
	n, head := min(want-units, use/spacing+1), t.weightAfter(units)
	if q.even { // what comes while slots are granted ahead: more has come again by then
		n = min(n, max(head, 1+t.ask.Horizon/max(1, q.tight.span/max(1, q.tight.limit))))
	}
	if next > max(t.now, q.next) {
		for _, p := range t.binds {
			n = min(n, max(head, p.part(t, use)))
		}
	}
	return n
}

// part is how many units fall to the campaign in the given time, beside the others that wait.
func (q *demand) part(t *taking, use int64) int64 {
	weight := func(r *rival) int64 { return max(1, 1000*costScale/r.cost) }
	own := weight(q.self)
	all := own
	for _, r := range q.held.rivals {
		if r != q.self && r.awaited(t.now, t.grace()) {
			all += weight(r)
		}
	}
	n := max(1, (min(q.tight.limit, delivery.MaxGrant)*own+all-1)/all)
	if q.even {
		return use/max(1, q.tight.span/n) + 1
	}
	return n * (use/q.tight.span + 1)
}
