package contention

import (
	"github.com/pacer/pacer/internal/delivery"
)

// learn notes answers of the store, and reports whether all were answered.
func (c *Quotas) learn(chosen []*Contender, take int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range chosen {
		if x.Out.GrantedAt == 0 {
			return false
		}
		if g := x.Out; x.Own.More && x.Own.Want > 0 && g.Bound == delivery.BindNone { // there is more for it when its next slot is near
			g.Bound = delivery.BindRate
			g.NextAt = max(g.GrantedAt+x.Own.Quantum, g.First.Advance(g.Units, g.Rate).Micros()-x.Own.Horizon)
		}
		var in []*contention
		for i, quota := range x.Own.Campaign.Quotas {
			if q := c.learnOf(quota, i, x, take); q != nil && q.waiting[x.Own.Campaign.ID] != nil {
				in = append(in, q)
			}
		}
		if x.Out.Bound != delivery.BindNone {
			reserve(in, x.Own, x.Out, x.Out.GrantedAt)
		}
	}
	return true
}

// learnOf notes what an answer says of the i-th quota, and returns who waits for it, if anyone does. Under mu.
func (c *Quotas) learnOf(quota *delivery.Quota, i int, x *Contender, take int64) *contention {
	g := x.Out
	if x.Own.Want <= 0 {
		if q := c.quotas[quota.ID]; q != nil && q.quota.Revision == quota.Revision && x.Own.Joint != nil && x.Own.Joint[i].Cost > 0 {
			left, look := q.see(g)
			if q.room = look.Share; look.Share == x.Own.Joint[i].All { // there is enough, also for who comes yet
				q.room = left
			}
			q.looked, q.next = q.at, look.MoreAt
		}
		return nil
	}
	if !binds(quota, x.Own) {
		return nil
	}
	refused := g.Bound == delivery.BindQuota && g.BoundQuota == quota.ID
	q := c.of(quota, x.Own)
	if q == nil && refused && g.NextAt > 0 {
		q = c.add(quota, g.BoundWindow)
		q.join(x.Own, g.GrantedAt, 0)
	}
	if q != nil {
		q.learn(x, refused, take)
	}
	return q
}

// see notes how much the quota has. It returns that, and what was seen in a look.
func (q *contention) see(g *delivery.Granted) (left int64, look delivery.Look) {
	left = delivery.MaxGrant
	q.at, q.until, q.windows = g.GrantedAt, 0, nil
	for _, s := range g.Windows {
		if s.Quota == q.quota.ID && s.Window < len(q.quota.Windows) {
			if q.windows, q.until, look = append(q.windows, s), max(q.until, s.FreeAt, s.Look.OpensAt), s.Look; s.Remaining < left {
				left = s.Remaining
				if q.quota.Spend != delivery.SpendEven { // whose pace decides
					q.window = s.Window
				}
			}
		}
	}
	if gap := max(0, q.until-q.at); gap >= q.gap || q.at > q.gapAt+2*q.quota.Windows[q.window].Span.Microseconds() {
		q.gap, q.gapAt = gap, q.at
	}
	return left, look
}

func (q *contention) learn(x *Contender, refused bool, take int64) {
	g, id := x.Out, x.Own.Campaign.ID
	left, _ := q.see(g)
	if q.room = min(left, max(0, q.room-g.Units)); q.room == 0 {
		q.looked = 0 // it is not known why: nothing may remain, or be kept for other daemons
	}
	heavy := refused && x.Own.WeightAfter(g.Units) > max(1, left)
	elsewhere := g.NextAt > max(q.at, q.until)+second && !heavy // another limit prevents it from asking
	if m := q.waiting[id]; m != nil {
		m.service += g.Units * m.cost()
		m.want, m.demand, m.due = m.want-g.Units, max(0, m.demand-g.Units), g.GrantedAt
		if g.Bound != delivery.BindNone {
			m.due = g.NextAt
		}
		m.daemons = max(1, g.Waiting)
	}
	switch {
	case !refused:
	case g.NextAt == 0: // its job is too heavy, ever, or a limit is 0
		q.leave(id)
	default:
		q.refused, q.window = g.GrantedAt, g.BoundWindow
		if left == 0 || !elsewhere && !heavy { // else there is room for others
			q.next, q.stopped = g.NextAt, take
		}
	}
}

// Returned notes that units of a campaign's quotas were handed back.
func (c *Quotas) Returned(campaign *delivery.Campaign) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, quota := range campaign.Quotas {
		if q := c.quotas[quota.ID]; q != nil {
			q.until, q.looked = 0, 0
		}
	}
}
