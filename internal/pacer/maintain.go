package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maintainEvery is how often each queue is maintained. Many queues are maintained in steps: at most maintainSteps
	// in maintainEvery, each with few enough queues that slots need not wait for it.
	maintainEvery = 250 * time.Millisecond
	maintainSteps = 10
	maintainBit   = 1000
)

// maintenance is the progress of maintenance: it goes round the list of queues.
type maintenance struct {
	at    int64 // local time of the next step
	done  int   // queues of the list, in this round
	begun int64 // local time when the round began

	yields []*queue // that are to give jobs back to lanes; see Yield
}

// step is how many queues of a list the next step maintains.
func (u *maintenance) step(queues int) int { return max(maintainBit, queues/maintainSteps+1) }

// again says when to continue: soon, or, at the end of a round, which it reports, when the next one is
// due.
func (u *maintenance) again(queues int, now int64) (over bool) {
	if u.done < queues {
		u.at = now + maintainEvery.Microseconds()/maintainSteps
		return false
	}
	u.done, u.at = 0, max(u.begun, now-maintainEvery.Microseconds()/2)+maintainEvery.Microseconds()
	return true
}

// maintain does the work that no event triggers, for jobs that have waited too long and for load: some of the queues in
// each step, and the work common to all at the end of a round.
func (p *Pacer) maintain(now instant) {
	u := &p.maintenance
	if u.done == 0 {
		u.begun = now.local
		if s := p.opt.Catalog.Snapshot(); s != p.campaigns.snapshot {
			p.apply(s, now) // reloaded without a change: its age decides on unknown campaigns
		}
	}
	for n := u.step(len(p.queues.list)); n > 0 && u.done < len(p.queues.list); n-- {
		q := p.queues.list[u.done]
		if q.campaign == nil || q.standing(now) != sending {
			p.review(q, now)
		} else {
			p.returnBeyond(q, now)
			p.disallow(q, tooLate(now.wall))
			p.moveOn(q, now)
			p.makeCapacity(q, now)
		}
		if q.idle(now) {
			p.queues.drop(q)
		} else {
			u.done++
		}
	}
	if !u.again(len(p.queues.list), now.local) {
		return
	}
	for _, s := range p.sinks {
		p.wake(s) // a free call may have been meant for a queue that could not use it any more
		if p.maintainFollowUps(s, now); s.destined {
			p.metrics.closedDestinations.WithLabelValues(s.id).Set(float64(p.destinations.shut(s.id, now.local)))
		}
	}
	p.returnUnsent()
	if p.takes.recovered(now.local) {
		p.opt.Logger.Info("the quota store answers again")
	}
	p.campaigns.dropCounts(p.opt.UnknownGrace, now)
	p.measure()
	p.measureRates(now)
	p.quantum.adapt(p.takes.lasts)
}

// moveOn relays the jobs from ingress and timers that will not get their turn in time: an ingress offset must not stay
// open for long, except if the campaign's overflow is block. Jobs that hold a slot stay, and, for half as
// long again, those that are sent soon: in the lane they would be last.
func (p *Pacer) moveOn(q *queue, now instant) {
	latest := now.wall.Add(now.until(q.turn()) - p.opt.MaxOpenAge) // jobs read before must not wait any longer
	if q.direct == 0 || q.oldest.After(latest) {
		return
	}
	q.oldest = now.wall
	grace := latest.Add(-p.opt.MaxOpenAge / 2)
	p.moveOut(q, func(ahead int64, j *delivery.Job) bool {
		if remains(j, q.campaign) {
			return false
		}
		stays := ahead < q.granted || j.ReadAt.After(latest) || j.ReadAt.After(grace) && ahead <= q.sentIn(soonWithin, now)
		if stays && j.ReadAt.Before(q.oldest) {
			q.oldest = j.ReadAt
		}
		return !stays
	}, func(j *delivery.Job) placement { return relayed(j, q.campaign, now) }, now)
}

func (p *Pacer) measure() {
	jobs := p.destinations.waiting.jobs
	for _, q := range p.queues.list {
		jobs += q.len()
	}
	for _, s := range p.sinks {
		jobs += s.followUps.ready
	}
	p.metrics.quantum.Set(float64(p.quantum.length) / 1e6)
	p.metrics.queued.Set(float64(jobs))
	p.metrics.queues.Set(float64(len(p.queues.list)))
}
