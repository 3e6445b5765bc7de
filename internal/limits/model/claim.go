package model

import (
	"math"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// quotaShare is how many of the slots the quotas allow.
func (t *taking) quotaShare(slots int64) int64 {
	soft, hard := slots, int64(delivery.MaxGrant)
	for _, q := range t.binds {
		q.share = t.rivalShare(q, slots)
		soft, hard = min(soft, q.share), min(hard, q.hard)
	}
	if soft >= slots && hard >= slots {
		return slots
	}
	return jobs(t.ask, min(soft, slots), min(hard, slots))
}

// look says how much of each quota falls to the daemon that asks for nothing yet, and when that may grow, and lets its claim stand until then.
func (t *taking) look() {
	for _, q := range t.binds {
		if q.joint.Cost == 0 {
			continue
		}
		q.share = t.rivalShare(q, q.joint.All)
		at := t.next(q)
		q.self.seen, q.self.due, q.self.demand = t.now, max(q.joint.Due, at), q.joint.Left
		if q.share < q.joint.All {
			more := q.growsAt(t)
			if q.keptUntil > 0 {
				more = min(more, q.keptUntil+1)
			}
			if more < math.MaxInt64 {
				at = max(at, more)
			}
		}
		q.look = delivery.Look{Share: q.share, MoreAt: at, OpensAt: q.opensAt(t)}
		if q.share == 0 {
			q.self.due = max(q.self.due, at)
		}
		q.quota.rivals.level()
	}
	for _, q := range t.binds {
		if q.joint.Cost > 0 && t.keptElsewhere(q) {
			q.self.demand = 0
		}
	}
}

// next is when a daemon asks for what is left of its campaigns' claims: in a moment or, where nothing remains, when something comes back.
func (t *taking) next(q *demand) int64 { return max(t.now+t.ask.Quantum, q.opensAt(t)) }

// rivalShare is how many units of the quota's room fall to the daemon or, where it has no claim, to the campaign.
func (t *taking) rivalShare(q *demand, want int64) int64 {
	cost, isNew := Cost(t.ask.Campaign.PriorityWeight), true
	q.self = &rival{}
	if q.joint.Cost > 0 {
		cost = q.joint.Cost
		q.self, isNew = q.quota.rivals.join(t.now, t.node, second, t.grace())
	}
	q.self.cost = cost
	awaited := q.self.awaited(t.now, t.grace())
	q.wasOwed = awaited && q.self.demand > 0
	q.measure(t)
	if awaited && q.soft == 0 {
		return 0 // there is nothing to share
	}

	dearest := cost
	for _, r := range q.quota.rivals {
		if r == q.self || !r.awaited(t.now, t.grace()) {
			continue
		}
		dearest = max(dearest, r.cost)
		if until := r.until(t.grace()); r.demand > 0 && (q.keptUntil == 0 || until < q.keptUntil) {
			q.keptUntil = until
		}
	}
	others, low := q.quota.rivals.others(q.self, func(r *rival) bool { return r.active(t.now, t.grace()) })
	if !isNew && (awaited || len(others) == 0) {
		// Units that were not asked for are not owed later, beyond what the window held.
		low -= min(q.tight.limit, delivery.MaxGrant) * dearest
	}
	q.self.service = max(q.self.service, low)
	n := share(q.self.service, q.self.cost, q.soft, want, others)
	if n == min(want, q.soft) {
		q.keptUntil = 0
	}
	return n
}

// quotaNext is when the job after the granted units can be granted by every quota, 0 if it never can, and names
// the binding window. The granted units have been debited.
func (t *taking) quotaNext(units int64) int64 {
	var bound *demand
	next, weight := int64(0), t.ask.WeightAfter(units)
	for _, q := range t.binds {
		if bound == nil || min(q.share, q.hard) < min(bound.share, bound.hard) {
			bound = q
		}
		for _, w := range q.windows {
			if weight > w.limit {
				next = never
				continue
			}
			q.next = max(q.next, q.opens(t, w, weight))
		}
		if q.next == 0 && q.keptUntil > 0 {
			q.next = max(t.now+t.ask.Quantum, min(q.keptUntil+1, q.growsAt(t)))
		}
		if next != never {
			next = max(next, q.next)
		}
	}
	t.out.BoundQuota, t.out.BoundWindow = bound.spec.ID, bound.index
	switch next {
	case never:
		return 0
	case 0: // there is room, but not for a whole job
		return t.now + t.ask.Quantum
	}
	return next
}

// settleQuotas records what each quota granted the daemon, and how much more it can use before it asks again.
func (t *taking) settleQuotas(units, slots, want int64) {
	next := t.out.NextAt
	for _, q := range t.binds {
		r := q.self
		if r == nil || q.joint.Cost == 0 {
			continue
		}
		r.seen, r.demand, r.due = t.now, 0, 0
		r.service += units * r.cost
		switch {
		case units < want && next > 0 && t.reserves(q, units, slots):
			r.due, r.demand = max(q.joint.Due, next), q.joint.All
		case q.joint.Left > 0:
			r.due, r.demand = max(q.joint.Due, t.next(q)), q.joint.Left
		case units < want:
			r.due = next // it keeps its place, and claims nothing
		}
		q.quota.rivals.level()
	}
}

// reserves reports whether units of a quota are kept for the daemon until it asks for the campaign again. They are not if another limit
// makes it wait for more than a second or, if that limit is another quota, for more than a span: what others take now will be there again
// by then. Nor are they if another quota has units and keeps all of them for others: of two that each keep what the other needs, none would
// ever be sent. Nor are they if what the campaign needs has come again by the time it asks.
func (t *taking) reserves(q *demand, units, slots int64) bool {
	patience := second
	if units < slots {
		patience = max(second, q.tight.span)
	}
	if t.out.NextAt > max(t.now, q.next)+patience {
		return false
	}
	return (units > 0 || !t.keptElsewhere(q)) && !q.comesAgain(t.now, t.out.NextAt)
}

// keptElsewhere reports whether another quota has units and keeps all of them for others.
func (t *taking) keptElsewhere(q *demand) bool {
	return slices.ContainsFunc(t.binds, func(p *demand) bool { return p != q && p.share == 0 && p.keptUntil > 0 })
}
