package model

import "github.com/pacer/pacer/internal/delivery"

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
	self, isNew := tl.rivals.join(t.now, t.node, max(tl.fresh(), claimFor), t.grace())
	t.out.Daemons, t.out.Waiting = int64(len(tl.rivals)), tl.waiting(self)
	slots := t.slotShare(self, isNew, start, available)
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
	self.seen, self.demand, self.due, self.service = t.now, 0, 0, self.service+units
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
		self.demand = delivery.MaxGrant
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
func (t *taking) slotShare(self *rival, isNew bool, start delivery.Slot, available int64) int64 {
	tl := t.tl
	others, low := tl.rivals.others(self, func(r *rival) bool { return r.demand > 0 && t.now-r.seen <= tl.fresh() })
	if !isNew { // a daemon that lags further behind than this had no use for its share
		low -= 2*(t.ask.Horizon/tl.rate.Spacing()) + 8 + t.ask.WeightAfter(0)
	}
	self.cost, self.service = 1, max(self.service, low)
	if len(others) == 0 {
		return available
	}
	t.out.Competitors += int64(len(others))
	near := start.CountUntil(t.now+t.ask.Horizon/2, tl.rate, available)
	return max(near, share(self.service, self.cost, available, available, others))
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
