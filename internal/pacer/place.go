package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// place decides for each job where it waits: its queue, a lane, a timer, memory for a moment, or the dead letters.
// Jobs that stay where they are (see stays) and do not fit are returned, with every later job of the same campaign, so
// that order is kept; high-priority jobs overtake those of ingress.
func (p *Pacer) place(jobs []*delivery.Job, now instant) (refused []*delivery.Job) {
	full := map[string]bool{}
	if len(jobs) > 0 && jobs[0].From == delivery.FromLane {
		p.upkeep.ahead.saw(jobs[0])
	}
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
func (p *Pacer) placeOne(j *delivery.Job, now instant) bool {
	if j.Flaw != nil {
		p.dead(j, j.Flaw.Defect, j.Flaw.Detail)
		return true
	}
	e := p.campaign(j.Campaign, now)
	if e == nil {
		return p.parkUnknown(j, now)
	}
	c := e.campaign
	j.Campaign, j.Account = c.ID, e.account // one string for all jobs of the campaign
	if j.Duplicate {
		j.Settle(delivery.OutcomeDuplicate)
		return true
	}
	j.TTL = c.TTL
	switch s := standingOf(c, e.sink, now.wall); {
	case s == cancelled:
		j.Settle(delivery.OutcomeCancelled)
		return true
	case s == completed:
		p.dead(j, delivery.ReasonExpired, delivery.DetailCompleted)
		return true
	case j.Expired(now.wall):
		p.dead(j, delivery.ReasonExpired, "expires-at or the campaign's job_ttl has passed")
		return true
	case j.State != nil:
		p.placeStep(j, e, now)
		return true
	case j.Weight > p.opt.MaxWeight || j.Weight > maxUnits(c):
		p.dead(j, delivery.ReasonOverweight, overweight(j.Weight, p.opt.MaxWeight, c))
		return true
	case s == held:
		return p.overflow(j, e, now)
	}
	if wait := j.ReadyAt().Sub(now.wall); wait > 0 {
		p.wait(j, wait, delivery.ReasonNotBefore, now)
		return true
	}
	if p.opt.Missing != nil {
		if detail := p.opt.Missing(e.sink.id, j); detail != "" {
			p.awaitRow(j, true, delivery.ReasonUnknownDestination, detail, now)
			return true
		}
	}
	if p.parkAtDestination(e.sink, j, now) {
		return true
	}
	q := p.queue(e)
	if !p.fits(q, j, now) {
		if src, ok := j.Source.(capacityReceiver); ok && p.refuses(q, j, now) {
			q.await(src)
			return false
		}
		if len(e.campaign.Lanes) == 0 && now.local >= q.behindUntil && j.From == delivery.FromIngress && rank(j) == rankOther {
			q.behindUntil = now.in(lanesKnown)
		}
		return p.overflow(j, e, now)
	}
	q.push(j)
	if j.From == delivery.FromLane {
		q.came(j.Weight)
	}
	if q.granted > 0 {
		p.schedule(q)
	}
	p.takes.want(q)
	return true
}

// lanesKnown is how soon after its first job went to a lane a campaign is known to have one. Until then the jobs behind it
// must not take the room of those that are sent meanwhile.
const lanesKnown = 3 * time.Second

// stays reports whether a job of the campaign that does not fit here waits where it was read: in a lane, or in ingress if
// the campaign's overflow is block.
func stays(j *delivery.Job, c *delivery.Campaign) bool {
	return j.From == delivery.FromLane || j.From == delivery.FromIngress && c.Overflow == delivery.OverflowBlock
}

// blockedRetry is how long a job that came back from a timer waits in another one when it does not fit and its campaign
// does not use lanes. Timers are shared, so it cannot stay in the one it came from.
const blockedRetry = 30 * time.Second

// overflow handles a job that does not fit: it goes to its campaign's lane, or stays where it is; false means that it
// stays, and that its source is notified when there is room.
func (p *Pacer) overflow(j *delivery.Job, e *effective, now instant) bool {
	if !stays(j, e.campaign) {
		p.relay(j, e.campaign, now)
		return true
	}
	if src, ok := j.Source.(capacityReceiver); ok {
		p.queue(e).await(src)
	}
	return false
}

// relay moves a job that does not stay to its campaign's lane, or to a timer if the campaign does not use lanes.
func (p *Pacer) relay(j *delivery.Job, c *delivery.Campaign, now instant) {
	to := delivery.Reroute{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}
	if c.Overflow == delivery.OverflowBlock {
		to.Kind, to.Due = delivery.ToTimer, now.wall.Add(blockedRetry)
	}
	p.opt.Requeuer.Put(j, to)
}

// fits reports whether the job's turn can come soon enough for it to wait in the queue, behind the jobs of its rank and of
// those before, and whether the campaign's part of the memory has room for it. A job that stays where it is until it is
// taken may wait there for any time: of a campaign whose turn is far off, only one is taken, to ask for slots with.
func (p *Pacer) fits(q *queue, j *delivery.Job, now instant) bool {
	if j.From == delivery.FromIngress && rank(j) == rankOther && (len(q.campaign.Lanes) > 0 || now.local < q.behindUntil && !stays(j, q.campaign)) {
		return false // behind the campaign's backlog
	}
	room, far := p.laneCapacity(q), p.far(q, now)
	if !stays(j, q.campaign) {
		if far {
			return false
		}
		room = max(1, q.campaign.Rate.UnitsIn(p.opt.MaxOpenAge-now.until(q.turnAt))/q.competitors)
	}
	ahead := q.ahead(rank(j))
	return ahead == 0 || !far && ahead+j.Weight <= room && q.size+j.Size <= p.opt.MaxQueueBytes
}

// maxUnknown bounds the queues above which no further one is made for an unknown campaign.
const maxUnknown = 10_000

// parkUnknown lets a job wait whose campaign is not known: in its lane for the grace, and in a timer otherwise. It returns false if the job
// stays in its lane.
func (p *Pacer) parkUnknown(j *delivery.Job, now instant) bool {
	j.Account = nil // of the campaign that it had, if it was deleted just now
	absent := p.absent(j.Campaign)
	src, ok := j.Source.(capacityReceiver)
	if ok && j.From == delivery.FromLane && !absent {
		q := p.queues.byID[j.Campaign]
		if q == nil && len(p.queues.list) < maxUnknown {
			q = p.addQueue(j.Campaign)
		}
		if q != nil {
			q.await(src)
			return false
		}
	}
	p.awaitRow(j, absent, delivery.ReasonUnknownCampaign, "no campaign with this id; create it, then replay", now)
	return true
}

// awaitRow moves a job whose campaign or destination has no row to a timer. If the row is absent, and was not in a catalog loaded after the
// grace that began when the job was first read, the job becomes a dead letter.
func (p *Pacer) awaitRow(j *delivery.Job, absent bool, why delivery.Reason, detail string, now instant) {
	seen := j.FirstRead
	if seen.IsZero() {
		seen = j.ReadAt
	}
	if s := p.campaigns.snapshot; absent && s != nil && s.LoadedAt.Sub(seen) > p.opt.UnknownGrace {
		p.dead(j, why, detail)
		return
	}
	wait := 5 * time.Second
	if j.TimerHops > 0 {
		wait = 30 * time.Second
	}
	wait = min(wait, max(time.Second, p.opt.UnknownGrace))
	p.opt.Requeuer.Put(j, delivery.Reroute{Kind: delivery.ToTimer, Reason: why, Due: now.wall.Add(wait)})
}

// absent reports whether a catalog that was loaded after the grace still lacks the unknown campaign.
func (p *Pacer) absent(campaign string) bool {
	s := p.campaigns.snapshot
	return s != nil && s.LoadedAt.Sub(p.campaigns.absentSince(campaign)) > p.opt.UnknownGrace
}

func (p *Pacer) dead(j *delivery.Job, why delivery.Reason, detail string) {
	p.opt.Requeuer.Put(j, delivery.Reroute{Kind: delivery.ToDead, Reason: why, Detail: detail})
}
