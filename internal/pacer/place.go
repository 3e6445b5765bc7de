package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// standing is what a campaign's jobs may do at the moment.
type standing uint8

const (
	sending   standing = iota
	held               // paused, rate 0, out of hours, before its start, no such sink, or unusable: jobs wait (see overflow)
	cancelled          // jobs settle as cancelled
	completed          // jobs settle as expired
)

// standing tells what the campaign's jobs may do at now.
func (p *Pacer) standing(c *delivery.Campaign, now time.Time) standing {
	switch {
	case c.Status == delivery.StatusCancelled:
		return cancelled
	case c.Status == delivery.StatusCompleted, c.Ended(now):
		return completed
	case c.Status != delivery.StatusActive, c.Invalid != "", c.Rate.Zero(), !c.Active(now):
		return held
	}
	if p.sinkOf(c) == nil {
		return held
	}
	return sending
}

// place decides for each job where it waits: its queue, a lane, a timer, memory for a moment, or the dead letters.
// Jobs that stay where they are (see stays) and do not fit are returned, with every later job of the same campaign, so
// that order is kept; high-priority jobs pass those of ingress.
func (p *Pacer) place(jobs []*delivery.Job) (refused []*delivery.Job) {
	now := time.Now()
	full := map[string]bool{}
	for _, j := range jobs {
		if full[j.Campaign] && (j.From == delivery.FromLane || j.Priority != delivery.PriorityHigh) {
			refused = append(refused, j)
		} else if !p.placeOne(j, now) {
			full[j.Campaign] = true
			refused = append(refused, j)
		}
	}
	return refused
}

// placeOne returns false when a job that stays where it is has to be offered again later.
func (p *Pacer) placeOne(j *delivery.Job, now time.Time) bool {
	if j.Defect != "" {
		j.Observe = p.observeUnknown
		p.dead(j, j.Defect, j.DefectDetail)
		return true
	}
	c := p.campaign(j.Campaign)
	if c == nil {
		p.unknown(j, now)
		return true
	}
	j.Campaign = c.ID // one string for all jobs of the campaign
	j.Observe = p.inForce[c.ID].observe
	if j.Duplicate {
		j.Settle(delivery.OutcomeDuplicate)
		return true
	}
	j.TTL = c.TTL
	switch s := p.standing(c, now); {
	case s == cancelled:
		j.Settle(delivery.OutcomeCancelled)
		return true
	case s == completed:
		p.dead(j, delivery.ReasonExpired, "the campaign is completed")
		return true
	case j.Expired(now):
		p.dead(j, delivery.ReasonExpired, "expires-at or the campaign's job_ttl has passed")
		return true
	case j.Weight > p.opt.MaxWeight || j.Weight > maxUnits(c):
		p.dead(j, delivery.ReasonOverweight, "the weight is above max_weight or above a limit of the campaign's quotas")
		return true
	case s == held:
		return p.overflow(j, c)
	}
	if wait := j.ReadyAt().Sub(now); wait > 0 {
		p.wait(j, wait, delivery.ReasonNotBefore)
		return true
	}
	q := p.queue(c)
	if !p.fits(q, j) {
		return p.overflow(j, c)
	}
	q.push(j)
	if q.held > 0 {
		p.schedule(q)
	}
	p.wantSlots(q)
	return true
}

// stays tells whether a job of the campaign that does not fit here waits where it was read: in a lane, or in ingress if
// the campaign's overflow is block.
func stays(j *delivery.Job, c *delivery.Campaign) bool {
	return j.From == delivery.FromLane || j.From == delivery.FromIngress && c.Overflow == delivery.OverflowBlock
}

// blockedRetry is how long a job that came back from a timer waits in another one when it does not fit and its campaign
// keeps out of lanes. Timers are shared, so it cannot stay in the one it came from.
const blockedRetry = 30 * time.Second

// overflow deals with a job that does not fit: it goes to its campaign's lane, or stays where it is; false means that it
// stays, and that its source is told when there is room.
func (p *Pacer) overflow(j *delivery.Job, c *delivery.Campaign) bool {
	switch {
	case stays(j, c):
		q := p.queue(c)
		if q.waiting == nil {
			q.waiting = map[delivery.Source]struct{}{}
		}
		q.waiting[j.Source] = struct{}{}
		return false
	case c.Overflow == delivery.OverflowBlock:
		p.opt.Requeuer.Put(j, delivery.Destination{
			Kind: delivery.ToTimer, Reason: delivery.ReasonOverflow, Due: time.Now().Add(blockedRetry),
		})
	default:
		p.toLane(j)
	}
	return true
}

// giveBack deals with a job that was taken and has no place any more, mostly since its campaign may not send: a lane takes
// it back; one that stays in ingress is parked, being in memory and its offset open anyway. Of several, the last goes
// first.
func (p *Pacer) giveBack(j *delivery.Job) {
	if j.From == delivery.FromLane {
		j.Source.Release(j.Campaign, j.Offset)
		return
	}
	if p.parked == nil {
		p.parked = map[string][]*delivery.Job{}
	}
	p.parked[j.Campaign] = slices.Insert(p.parked[j.Campaign], 0, j)
}

// unpark places the parked jobs of the queue's campaign again, when there may be a place for them.
func (p *Pacer) unpark(q *queue, now time.Time) {
	jobs, c := p.parked[q.id], q.campaign
	if len(jobs) == 0 || c != nil && c.Overflow == delivery.OverflowBlock && p.standing(c, now) == held {
		return
	}
	delete(p.parked, q.id)
	for i, j := range jobs {
		if !p.placeOne(j, now) {
			p.parked[q.id] = jobs[i:]
			return
		}
	}
}

// fits tells whether the job's turn can come soon enough for it to wait in the queue, behind the jobs of its rank and of
// those before. A job that stays where it is until it is taken may wait for any time; there is room for two seconds'
// worth of those.
func (p *Pacer) fits(q *queue, j *delivery.Job) bool {
	if q.campaign.Lane != delivery.NoLane && j.From == delivery.FromIngress && rank(j) == rankOther {
		return false // behind the campaign's backlog
	}
	room := p.laneRoom(q)
	if !stays(j, q.campaign) {
		age := p.opt.MaxOpenAge
		wait := time.Duration(max(0, q.turnAt-p.now())) * time.Microsecond
		if wait > age {
			return false
		}
		room = max(1, q.campaign.Rate.UnitsIn(age-wait)/q.competitors)
	}
	ahead := q.ahead(rank(j))
	return ahead+j.Weight <= room || ahead == 0
}

// laneRoom is how many units of a campaign may wait here that could as well wait where they were read: two seconds' worth.
func (p *Pacer) laneRoom(q *queue) int64 {
	return min(max(16, q.campaign.Rate.UnitsIn(2*time.Second)), p.opt.MaxLaneJobs)
}

// unknown lets the job wait for its campaign to appear, and gives up once a catalog loaded after the grace lacks it.
func (p *Pacer) unknown(j *delivery.Job, now time.Time) {
	j.Observe = p.observeUnknown
	seen := j.FirstRead
	if seen.IsZero() {
		seen = j.ReadAt
	}
	if p.snapshot != nil && p.snapshot.LoadedAt.Sub(seen) > p.opt.UnknownGrace {
		p.dead(j, delivery.ReasonUnknownCampaign, "no campaign with this id; create it, then replay")
		return
	}
	wait := 5 * time.Second
	if j.TimerHops > 0 {
		wait = 30 * time.Second
	}
	wait = min(wait, max(time.Second, p.opt.UnknownGrace))
	p.opt.Requeuer.Put(j, delivery.Destination{
		Kind: delivery.ToTimer, Reason: delivery.ReasonUnknownCampaign, Due: now.Add(wait),
	})
}

// wait keeps the job in memory when its time is near, and puts it into a timer otherwise.
func (p *Pacer) wait(j *delivery.Job, d time.Duration, why delivery.Reason) {
	if d < p.opt.MaxOpenAge {
		p.waits.push(j, p.now()+d.Microseconds()+1) // not a moment before it is ready
		return
	}
	p.opt.Requeuer.Put(j, delivery.Destination{Kind: delivery.ToTimer, Reason: why, Due: time.Now().Add(d)})
}

// release places the jobs whose wait in memory is over.
func (p *Pacer) release(now int64) {
	for p.waits.len() > 0 && p.waits.first().at <= now {
		j := p.waits.pop()
		if !p.placeOne(j, time.Now()) {
			p.giveBack(j)
		}
	}
}

func (p *Pacer) toLane(j *delivery.Job) {
	p.opt.Requeuer.Put(j, delivery.Destination{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow})
}

func (p *Pacer) dead(j *delivery.Job, why delivery.Reason, detail string) {
	p.opt.Requeuer.Put(j, delivery.Destination{Kind: delivery.ToDead, Reason: why, Detail: detail})
}

// maxUnits is the largest weight that the campaign's quota windows can ever grant.
func maxUnits(c *delivery.Campaign) int64 {
	most := int64(delivery.MaxGrant)
	for _, q := range c.Quotas {
		for _, w := range q.Windows {
			if w.Limit > 0 { // a limit of 0 holds; it does not condemn
				most = min(most, w.Limit)
			}
		}
	}
	return most
}
