package model

import (
	"math"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// taking is the state of one ask while the store serves it.
type taking struct {
	store *Store
	now   int64
	node  string
	ask   *delivery.Ask

	tl     *timeline
	quotas []*demand // all that have windows
	binds  []*demand // those of them that limit the campaign
	out    delivery.Granted
}

const never = int64(-1)

// grace is how late a competitor may be for the time it was told before units left for it go to others.
func (t *taking) grace() int64 { return 2 * t.ask.Quantum }

func (t *taking) run() delivery.Granted {
	c := t.ask.Campaign
	t.tl = t.store.timeline(t.now, c)
	t.openQuotas()
	t.out = delivery.Granted{
		First: delivery.Slot{At: t.tl.last}, Rate: t.tl.rate, Revision: t.tl.rev, GrantedAt: t.now, Competitors: 1, Daemons: 1, Waiting: 1,
		From: delivery.Provenance{Campaign: c},
	}
	switch {
	case t.tl.rate.Zero():
		t.out.Bound = delivery.BindHeld
	case t.ask.Want > 0:
		t.take()
	default:
		t.look()
	}
	for _, q := range t.quotas {
		for i, w := range q.windows {
			s := w.state(t.now, q.spec.ID, i)
			s.Look = q.look
			t.out.Windows = append(t.out.Windows, s)
		}
	}
	return t.out
}

// openQuotas brings the windows of the campaign's quotas to now.
func (t *taking) openQuotas() {
	for i, spec := range t.ask.Campaign.Quotas {
		if len(spec.Windows) == 0 {
			continue
		}
		q := &demand{spec: spec, quota: t.store.quota(spec.ID), covers: spec.Covers(t.ask.Campaign.ID), even: spec.Spend == delivery.SpendEven}
		if t.ask.Joint != nil {
			q.joint = t.ask.Joint[i]
		}
		q.windows = q.quota.open(spec, t.now, t.ask.Horizon+t.ask.LateTolerance)
		t.quotas = append(t.quotas, q)
		if spec.Mode != delivery.ModeShadow && q.covers {
			t.binds = append(t.binds, q)
		}
	}
}

func (t *taking) take() {
	if t.outdated() {
		return
	}
	ask, tl := t.ask, t.tl
	tl.catchUp(t.now, ask)
	g := t.gate()
	if g != nil && g.until > t.now {
		t.out.Bound, t.out.NextAt = delivery.BindGate, g.until
		if g.cause == delivery.GateThrottled && !g.asked {
			t.out.NextAt = min(g.until, t.now+probed)
		}
		return
	}
	want := jobs(ask, ask.Want, delivery.MaxGrant)

	// The slots that the timeline has for the daemon, and how many of them the quotas allow.
	start, end, hole := t.slotsFrom(g)
	available := start.CountUntil(end, tl.rate, delivery.MaxGrant)
	self := tl.join(t.now, t.node, t.grace())
	t.out.Daemons, t.out.Waiting = int64(len(tl.nodes)), tl.waiting(self)
	slots := t.slotShare(self, start, available)
	if g != nil {
		slots = min(slots, 1) // the head, and nothing else
	}
	slots = jobs(ask, slots, delivery.MaxGrant)
	units := slots
	if slots > 0 {
		units = t.quotaShare(slots)
	}

	if units > 0 {
		t.out.Units, t.out.First = units, start
		tl.grant(hole, start, units)
		for _, q := range t.quotas {
			t.debit(q, units)
		}
		if g != nil {
			g.until, g.asked = t.now+probeEvery, false
		}
	}

	// The bound that ended the grant, and when there is more.
	self.seen, self.cut, self.due, self.served = t.now, 0, 0, self.served+units
	switch {
	case units < slots:
		t.out.Bound = delivery.BindQuota
		t.out.NextAt = t.quotaNext(units)
		self.due = t.out.NextAt
	case g != nil && units > 0 && units < want:
		t.out.Bound, t.out.NextAt = delivery.BindGate, g.until
	case units < want:
		t.out.Bound = delivery.BindRate
		t.out.NextAt = t.rateNext(start, units, available)
		self.cut = t.now
	case ask.More:
		self.due = t.now + ask.Quantum
	}
	t.settleQuotas(units, slots, want)
}

// outdated reports whether the daemon has an old revision of a quota. It waits until its catalog is up to date.
func (t *taking) outdated() bool {
	for _, q := range t.quotas {
		if q.spec.Revision < q.quota.rev {
			t.out.Bound, t.out.BoundQuota, t.out.NextAt = delivery.BindQuota, q.spec.ID, t.now+t.ask.Quantum
			return true
		}
	}
	return false
}

// slotsFrom is where the slots for the ask begin, when the last may be, and the hole of the timeline they are in, -1 for none.
func (t *taking) slotsFrom(g *gate) (start delivery.Slot, end int64, hole int) {
	tl, horizon := t.tl, t.now+t.ask.Horizon
	tl.holes.expire(t.now)
	start = tl.next
	if g == nil && t.ask.Weights == nil { // a heavy job might not fit into a hole
		if i, at := tl.holes.first(t.now, tl.rate.Spacing()); i >= 0 && at <= horizon {
			return delivery.Slot{At: at}, min(horizon, tl.holes[i].last), i
		}
	}
	return start, horizon, -1
}

// debit counts granted units in all windows of a quota, by the same amount. A quota in shadow mode counts what it would
// have granted, and reports the rest.
func (t *taking) debit(q *demand, units int64) {
	if !q.covers {
		return
	}
	if q.spec.Mode == delivery.ModeShadow {
		q.measure(t)
		if would := jobs(t.ask, min(units, q.soft), q.hard); would < units {
			t.out.Shadowed = append(t.out.Shadowed, delivery.Shadowed{Quota: q.spec.ID, Units: units - would})
			units = would
		}
	}
	for _, w := range q.windows {
		if q.even {
			w.spend(t.now, units, q.wasOwed)
		}
		if units > 0 {
			w.debit(t.now, units)
		}
	}
}

// jobs is how many units the wanted jobs at the head come to that begin within the first soft units and end within the first hard ones.
func jobs(ask *delivery.Ask, soft, hard int64) int64 {
	_, units := ask.Jobs(min(soft, ask.Want), hard)
	return units
}

// slotShare is how many of the available slots the daemon may take: those assigned to it by fair queueing, or those so
// near that they would be lost if they were left for another daemon.
func (t *taking) slotShare(self *node, start delivery.Slot, available int64) int64 {
	tl := t.tl
	var others []flow
	low, high, found := int64(0), int64(0), false
	before := true
	for _, n := range tl.nodes {
		if n == self {
			before = false
			continue
		}
		high = max(high, n.served)
		cut := n.cut > 0 && t.now-n.cut <= tl.fresh()
		if cut {
			t.out.Competitors++
			others = append(others, flow{at: n.served, cost: 1, demand: available, first: before})
		}
		if cut || n.awaited(t.now, t.grace()) {
			if !found || n.served < low {
				low, found = n.served, true
			}
		}
	}
	switch {
	case self.served < 0 && !found:
		self.served = high
	case self.served < 0:
		self.served = max(0, low-1)
	case found:
		// A daemon that lags further behind than this had no use for its share.
		lag := 2*(t.ask.Horizon/tl.rate.Spacing()) + 8 + t.ask.WeightAfter(0)
		self.served = max(self.served, low-lag)
	}
	if len(others) == 0 {
		return available
	}
	near := start.CountUntil(t.now+t.ask.Horizon/2, tl.rate, available)
	return max(near, share(self.served, 1, available, available, others))
}

// rateNext is when more slots can be granted: when the next one enters the horizon or, if slots are left for
// others, is near enough to go to any daemon.
func (t *taking) rateNext(start delivery.Slot, units, available int64) int64 {
	next := start.Advance(max(units, available), t.tl.rate).Micros() - t.ask.Horizon
	if units < available {
		next = min(next, start.Advance(units, t.tl.rate).Micros()-t.ask.Horizon/2)
	}
	return max(next, t.now+1)
}

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
		q.quota.level()
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
	cost, fresh := Cost(t.ask.Campaign.PriorityWeight), true
	q.self = &rival{}
	if q.joint.Cost > 0 {
		cost = q.joint.Cost
		q.self, fresh = q.quota.join(t.now, t.node, t.grace())
	}
	q.self.cost = cost
	awaited := q.self.awaited(t.now, t.grace())
	q.wasOwed = awaited && q.self.demand > 0
	q.measure(t)
	if awaited && q.soft == 0 {
		return 0 // there is nothing to share
	}

	var others []flow
	low, high, dearest := int64(0), int64(0), cost
	ahead := true
	for _, r := range q.quota.rivals {
		if r == q.self {
			ahead = false
			continue
		}
		high = max(high, r.service)
		if r.awaited(t.now, t.grace()) {
			dearest = max(dearest, r.cost)
		}
		if !r.active(t.now, t.grace()) {
			continue
		}
		if len(others) == 0 || r.service < low {
			low = r.service
		}
		others = append(others, flow{at: r.service, cost: r.cost, demand: r.demand, first: ahead})
		if until := r.until(t.grace()); q.keptUntil == 0 || until < q.keptUntil {
			q.keptUntil = until
		}
	}
	if len(others) == 0 {
		low = high
	}
	if !fresh && (awaited || len(others) == 0) {
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
		q.quota.level()
	}
}

// reserves reports whether units of a quota are kept for the daemon until it asks for the campaign again. They are not if another limit
// makes it wait for more than a second or, if that limit is another quota, for more than a span: what others take now will be there again
// by then. Nor are they if another quota has units and keeps all of them for others: of two that each keep what the other needs, none would
// ever be sent.
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
