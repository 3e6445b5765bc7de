package limits

import (
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// learn notes answers of the store, and reports whether all were answered.
func (c *contentions) learn(chosen []*contender, take int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range chosen {
		if x.out.GrantedAt == 0 {
			return false
		}
		var in []*contention
		for _, quota := range x.own.Campaign.Quotas {
			if q := c.learnOf(quota, x, take); q != nil && q.waiting[x.own.Campaign.ID] != nil {
				in = append(in, q)
			}
		}
		if x.out.Bound != delivery.BindNone {
			reserve(in, x.own, x.out, x.out.GrantedAt)
		}
	}
	return true
}

// learnOf notes what an answer says of a quota, and returns its crowd, if there is one. Under mu.
func (c *contentions) learnOf(quota *delivery.Quota, x *contender, take int64) *contention {
	g := x.out
	if x.own.Want <= 0 {
		if q := c.quotas[quota.ID]; q != nil && q.quota.Revision == quota.Revision {
			q.see(g)
		}
		return nil
	}
	if !binds(quota, x.own) {
		return nil
	}
	refused := g.Bound == delivery.BindQuota && g.BoundQuota == quota.ID
	q := c.of(quota, x.own)
	if q == nil && refused && g.NextAt > 0 {
		q = c.add(quota, g.BoundWindow)
		q.join(x.own, g.GrantedAt, 0)
	}
	if q != nil {
		q.learn(x, refused, take)
	}
	return q
}

// see notes how much the quota has.
func (q *contention) see(g *delivery.Granted) {
	q.at, q.until, q.room, q.windows = g.GrantedAt, 0, delivery.MaxGrant, nil
	for _, s := range g.Windows {
		if s.Quota == q.quota.ID && s.Window < len(q.quota.Windows) {
			q.windows, q.room, q.until = append(q.windows, s), min(q.room, s.Remaining), max(q.until, s.FreeAt)
		}
	}
}

func (q *contention) learn(x *contender, refused bool, take int64) {
	g, id := x.out, x.own.Campaign.ID
	q.see(g)
	heavy := refused && x.own.WeightAfter(g.Units) > max(1, q.room)
	elsewhere := g.NextAt > max(q.at, q.until)+second && !heavy // another limit prevents it from asking
	if m := q.waiting[id]; m != nil {
		m.service += g.Units * model.Cost(m.weight)
		m.want, m.demand, m.due = m.want-g.Units, max(0, m.demand-g.Units), g.GrantedAt
		if g.Bound != delivery.BindNone {
			m.due = g.NextAt
		}
		if g.Daemons >= m.daemons || g.GrantedAt > m.counted+exhaustedTTL {
			m.daemons, m.counted = max(1, g.Daemons), g.GrantedAt
		}
	}
	switch {
	case !refused:
	case g.NextAt == 0: // its job is too heavy, ever, or a limit is 0
		q.leave(id)
	default:
		q.refused, q.window = g.GrantedAt, g.BoundWindow
		if q.room == 0 || !elsewhere && !heavy { // else there is room for others
			q.next, q.stopped = g.NextAt, take
		}
	}
}

// returned notes that units of a campaign's quotas were handed back.
func (c *contentions) returned(campaign *delivery.Campaign) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, quota := range campaign.Quotas {
		if q := c.quotas[quota.ID]; q != nil {
			q.until, q.room = 0, 0
		}
	}
}
