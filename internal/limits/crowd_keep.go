package limits

import "github.com/pacer/pacer/internal/delivery"

// answer refuses an ask of a member of crowds on behalf of one of them. It is to ask again when units become free or, where some
// are there, at next.
func answer(x *contender, in []*crowd, by *crowd, next, now int64, from delivery.Provenance) {
	c := x.own.Campaign
	if next = max(now+x.own.Quantum, min(next, now+refusedFor)); by.until > now {
		next = by.until
	}
	by.refused = now
	from.Campaign = c
	*x.out = delivery.Granted{
		Rate: c.Rate, Revision: c.Revision, GrantedAt: by.at, NextAt: next, Bound: delivery.BindQuota, BoundQuota: by.quota.ID,
		BoundWindow: by.window, Competitors: 1, Daemons: by.waiting[c.ID].daemons, Windows: by.windows, From: from,
	}
	keep(in, x.own, x.out, now)
	if by.until <= now && len(in) > 1 { // it keeps units for others: of two that each keep what the other needs, none would be sent
		for _, q := range in {
			q.waiting[c.ID].demand = 0
		}
	}
}

// keep notes what of each quota is kept for a campaign that was refused or cut short, by the rules of the store: model/keep.go.
func keep(in []*crowd, a *delivery.Ask, g *delivery.Granted, now int64) {
	head := headAfter(a, g.Units)
	for _, q := range in {
		m, w, patience := q.waiting[a.Campaign.ID], &q.quota.Windows[q.window], second
		span := w.Span.Microseconds()
		m.asks, m.other = 0, g.Bound == delivery.BindQuota && g.BoundQuota != q.quota.ID
		if m.due = g.NextAt; g.Bound == delivery.BindQuota {
			patience = max(second, span)
		}
		switch there := max(now, q.until); {
		case m.due > there+patience:
			m.demand = 0
		case m.due > there && m.other:
			for _, p := range in {
				m.demand = min(m.demand, max(head, p.fair(p.waiting[a.Campaign.ID], span)))
			}
		}
	}
}

// fair is how many units fall to a member in the given time, beside the others that wait.
func (q *crowd) fair(m *member, time int64) int64 {
	w := &q.quota.Windows[q.window]
	n, span := max(1, (min(w.Limit, delivery.MaxGrant)*m.weight+q.weights-1)/q.weights), w.Span.Microseconds()
	if q.quota.Spend == delivery.SpendEven {
		return time/max(1, span/n) + 1
	}
	return n * (time/span + 1)
}

// headAfter is the weight of the job that follows the first units.
func headAfter(a *delivery.Ask, units int64) int64 {
	for _, w := range a.Weights {
		if units <= 0 {
			return w
		}
		units -= w
	}
	return 1
}
