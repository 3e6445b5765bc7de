package model

import (
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// reserves reports whether units of a quota are kept for the campaign until it asks again. They are not if another limit makes it wait
// for more than a second or, if that limit is another quota, for more than a span: what others take now will be there again by
// then. Nor are they if another quota has units and keeps all of them for others: of two campaigns that each keep what the other
// needs, none would ever be sent.
func (t *taking) reserves(q *demand, units, slots int64) bool {
	patience := second
	if units < slots {
		patience = max(second, q.tight.span)
	}
	if t.out.NextAt > max(t.now, q.next)+patience {
		return false
	}
	return units > 0 || !slices.ContainsFunc(t.binds, func(p *demand) bool { return p != q && p.share == 0 && p.keptUntil > 0 })
}

// claim lets units be kept for the campaign until it asks again.
func (t *taking) claim(q *demand, units, slots, want int64) {
	r := q.self
	if units < slots && min(q.share, q.hard) < slots {
		r.cut = t.out.NextAt
	}
	r.due, r.demand = t.out.NextAt, t.uses(q, units, want)
	for _, w := range q.windows {
		others := q.owed
		if w != q.tight {
			others = min(others, q.tight.until(t.now, r.due))
		}
		if w.algorithm == delivery.AlgorithmFixed && w.span >= q.tight.span && w.remaining() <= r.demand+others { // it would be cut short if nothing were kept
			r.cut = max(r.cut, w.reset)
		}
	}
	if q.joint.Cost > 0 {
		r.demand = q.joint.All
	}
}

// stay lets the claims of a daemon stand that asks for nothing yet: it looks how much there is, and keeps units for one of its campaigns
// that cannot ask now.
func (t *taking) stay() {
	for _, q := range t.binds {
		i := slices.IndexFunc(q.quota.rivals, func(r *rival) bool { return r.name == jointName(t.node) })
		if i < 0 || q.joint.Left <= 0 {
			continue
		}
		r := q.quota.rivals[i]
		r.seen, r.due, r.demand = t.now, max(r.due, t.next(q)), q.joint.Left
	}
}

// next is when a daemon asks for what is left of its campaigns' claims: in a moment or, where nothing remains, when something comes back.
func (t *taking) next(q *demand) int64 {
	at := t.now + t.ask.Quantum
	for _, w := range q.windows {
		if w.limit > 0 {
			at = max(at, q.opens(t, w, 1))
		}
	}
	return at
}

// uses is how many units of a quota the campaign can use when it asks again, before some of those that it used come back. A fixed window
// that is longer than the tightest may decide it, since what others take of that comes back late: they take as much as the tightest lets
// them until then.
func (t *taking) uses(q *demand, units, want int64) (n int64) {
	if n = t.usesOf(q, q.tight, units, want); q.even {
		return n
	}
	others := q.tight.until(t.now, t.out.NextAt)
	for _, w := range q.windows {
		if left := max(0, w.remaining()-others); w.algorithm == delivery.AlgorithmFixed && w.span > q.tight.span && left < want-units-n {
			n = max(n, t.usesOf(q, w, units, want)-left)
		}
	}
	return n
}

// usesOf is how many units of a window the campaign can use: of a sliding window they come back in steps, and those of a campaign that was
// cut short not before a span is over. Those of a fixed window come back together at its reset. Where another quota makes it wait, that
// is no more than falls to it by each of its quotas.
func (t *taking) usesOf(q *demand, w *window, units, want int64) int64 {
	next, spacing := t.out.NextAt, t.tl.rate.Spacing()
	use := min(next-t.now, t.ask.Horizon) + t.grace()
	if w.algorithm == delivery.AlgorithmSliding {
		use = max(use, w.width)
	}
	if until := q.self.cut + w.span; t.now <= until {
		if w.algorithm == delivery.AlgorithmFixed && next < w.reset {
			until = w.reset
		}
		use = max(use, min(w.span, until-next-1))
	}
	head := t.ask.WeightAfter(units) // with a unit less, others take that one each time, and the job would never be sent
	n := min(want-units, max(head, use/spacing+1))
	if q.even { // what comes while slots are granted ahead: more has come again by then
		n = min(n, max(head, 1+t.ask.Horizon/max(1, q.interval, spacing)))
	}
	if t.out.Bound == delivery.BindQuota && next > max(t.now, q.next) {
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
	for _, r := range q.quota.rivals {
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
