package contention

import (
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// answer refuses an ask on behalf of one of the quotas that it waits for. It is to ask again when units become free or, where some are
// there, at next.
func answer(x *Contender, in []*contention, by *contention, next, now int64, from delivery.Provenance) {
	c := x.Own.Campaign
	if next = max(now+x.Own.Quantum, next); by.until > now {
		next = by.until
	}
	by.refused = now
	*x.Out = delivery.Refused(c, delivery.BindQuota)
	x.Out.GrantedAt, x.Out.NextAt, x.Out.BoundQuota, x.Out.BoundWindow = by.at, next, by.quota.ID, by.window
	x.Out.Daemons, x.Out.Windows, x.Out.From.Shard, x.Out.From.Epoch = by.waiting[c.ID].daemons, by.windows, from.Shard, from.Epoch
	reserve(in, x.Own, x.Out, now)
	if by.until <= now && len(in) > 1 { // what there is falls to others: of two that each keep what the other needs, none would be sent
		for _, q := range in {
			q.waiting[c.ID].demand = 0
		}
	}
}

// reserve notes what of each quota is kept for a campaign that was refused or cut short until it asks again. Nothing is if another limit
// makes it wait for more than a second or, if that limit is a quota, for more than a span: what others take now will be there again by
// then.
func reserve(in []*contention, a *delivery.Ask, g *delivery.Granted, now int64) {
	head := a.WeightAfter(g.Units)
	for _, q := range in {
		m, w, patience := q.waiting[a.Campaign.ID], &q.quota.Windows[q.window], second
		span := w.Span.Microseconds()
		other := g.Bound == delivery.BindQuota && g.BoundQuota != q.quota.ID // which keeps it from asking
		m.asks = 0
		if m.due = g.NextAt; g.Bound == delivery.BindQuota {
			patience = max(second, span)
			if !other {
				m.cut = m.due
			}
		}
		m.demand = q.uses(m, a, g.Units, m.due)
		for _, s := range q.windows { // of which it would be cut short if nothing were kept
			others := q.wave.hopes
			if s.Window != q.window {
				others = min(others, q.takenUntil(m.due))
			}
			if q.quota.Windows[s.Window].Span >= w.Span && s.Remaining <= others {
				m.cut = max(m.cut, q.resetOf(s.Window, now))
			}
		}
		switch there := max(now, q.until); {
		case m.due > there+patience:
			m.demand = 0
		case m.due > there && other:
			for _, p := range in {
				m.demand = min(m.demand, max(head, p.fair(p.waiting[a.Campaign.ID], span)))
			}
		}
	}
}

// uses is how many units a member can use when it asks next, after it was granted some, before any of those that it used come back. A
// fixed window that is longer than the one that refused something may decide it, since what others take of that comes back late: they take
// as much as the other one lets them until then.
func (q *contention) uses(m *member, a *delivery.Ask, granted, next int64) int64 {
	n := q.usesOf(m, a, granted, next, q.window)
	if q.quota.Spend == delivery.SpendEven {
		return n
	}
	others, span := q.takenUntil(next), q.quota.Windows[q.window].Span
	for _, s := range q.windows {
		w, left := &q.quota.Windows[s.Window], max(0, s.Remaining-others)
		if w.Algorithm == delivery.AlgorithmFixed && w.Span > span && left < m.want-n {
			n = max(n, q.usesOf(m, a, granted, next, s.Window)-left)
		}
	}
	return n
}

// takenUntil is about how many units of the window that refused something can be granted until a time.
func (q *contention) takenUntil(at int64) int64 {
	w, left := &q.quota.Windows[q.window], q.stateOf(q.window).Remaining
	if w.Algorithm != delivery.AlgorithmFixed {
		span := w.Span.Microseconds()
		return left + w.Limit*max(0, min(at-q.at, span))/span
	}
	if reset := q.resetOf(q.window, q.at); 0 < reset && reset <= at {
		return left + w.Limit
	}
	return left
}

// usesOf is how many units of one of the quota's windows a member can use before more come back: while it waits to ask again, or in the
// longest time without a unit. Units taken in bursts become free in bursts, and a slow campaign would miss each burst before it had its
// share. Those of a fixed window come back together. A member that the quota cut short in the last span can use them until the reset. Another
// one needs no more than when it asks.
func (q *contention) usesOf(m *member, a *delivery.Ask, granted, next int64, window int) int64 {
	w, n := &q.quota.Windows[window], m.want
	span := w.Span.Microseconds()
	use := max(a.Horizon+q.grace, model.Step(*w), min(span, q.gap))
	if until := m.cut + span; w.Algorithm == delivery.AlgorithmFixed && next <= until {
		if reset := q.resetOf(window, next); reset > 0 {
			until = reset
		}
		use = max(use, min(span, until-next-1))
	}
	spacing := int64(1)
	if r := a.Campaign.Rate; !r.Zero() {
		spacing = r.Spacing() * m.daemons
		n = min(n, use/spacing+1)
	}
	if q.quota.Spend == delivery.SpendEven { // what comes while slots are granted ahead: more has come again by the time it asks
		n = min(n, max(a.WeightAfter(granted), 1+a.Horizon/max(q.quota.Interval(), spacing)))
	}
	return n
}

// resetOf is when a fixed window begins again after now; 0: it is of another kind, or that is not known.
func (q *contention) resetOf(window int, now int64) int64 {
	if s := q.stateOf(window); q.quota.Windows[window].Algorithm == delivery.AlgorithmFixed && s.ResetAt > now {
		return s.ResetAt
	}
	return 0
}

// stateOf is the state of a window as the store said last; zero if it said nothing.
func (q *contention) stateOf(window int) (state delivery.WindowState) {
	for _, s := range q.windows {
		if s.Window == window {
			state = s
		}
	}
	return state
}

// fair is how many units fall to a member in the given time, beside the others that wait.
func (q *contention) fair(m *member, time int64) int64 {
	if q.quota.Spend == delivery.SpendEven {
		return time*m.weight/q.weights/q.quota.Interval() + 1
	}
	w := &q.quota.Windows[q.window]
	n := max(1, (min(w.Limit, delivery.MaxGrant)*m.weight+q.weights-1)/q.weights)
	return n * (time/w.Span.Microseconds() + 1)
}
