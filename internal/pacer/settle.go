package pacer

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	defaultRetry = time.Second // a throttled answer that does not say how long
	logEvery     = time.Minute // of lines about single answers of a sink
	// unreachedPause is how long a job waits that did not reach its destination, where the breaker decides when the next one is sent, or where
	// it is another one by now.
	unreachedPause = 200 * time.Millisecond
)

// settle applies a sink's answer: what happens with the job, whether it uses an attempt, and what it says about the job's destination,
// campaign and sink.
func (p *Pacer) settle(x sent, now instant) {
	q, s, j := x.queue, x.sink, x.job
	allowed := x.forfeited && p.stillAllowed(&x.dispatch, now)
	if x.forfeited && j.SendBy != 0 && !allowed {
		p.opt.Keys.Release(j)
	}
	if !allowed {
		j.SendBy = 0
	}
	p.callEnded(q, &x, now)
	if len(s.full) > 0 {
		s.fullAt = now.local
	}
	if x.forfeited || x.result.Class == delivery.Withheld && x.result.RetryAfter == 0 { // the slot passed while a ledger or a goroutine was waited for
		p.noteLate(now)
	}
	reused := p.reuse(&x, now)
	p.wakeFollowUp(s, now)
	p.wake(s)
	if x.destination != nil {
		if !x.forfeited {
			p.answered.count(x.destination.destinationKey, x.result, now)
			p.counts.answered(j, &x.result, now.wall)
		}
		p.limitsOf(x.destination, now)
		defer func() { // its next jobs go
			p.proceed(x.destination, now)
			p.destinations.note(x.destination, now.local)
		}()
	}
	if (x.forfeited || x.result.Class >= delivery.Withheld) && !reused {
		p.unsent.add(x.used)
	}
	if allowed { // it goes at the next slot
		p.metrics.forfeited.Add(float64(j.Weight))
		q.putFront(rankAllowed, j)
		p.schedule(q)
		p.takes.want(q)
		return
	}
	p.carryOut(j, p.placementAfter(&x, now), now)
}

// placementAfter returns what happens with a job that was passed to its sink, and notes what its answer says.
func (v *judge) placementAfter(x *sent, now instant) placement {
	q, j := x.queue, x.job
	switch r := x.result; {
	case x.forfeited:
		v.metrics.forfeited.Add(float64(j.Weight))
		return v.unsentJob(q, j, 0, delivery.ReasonRetry, now)
	case x.outdated():
		return v.again(j, unreachedPause, now)
	case r.Class == delivery.Delivered:
		j.Attempt++
		v.noteSuccess(x, now)
		return settledAs(delivery.OutcomeDelivered)
	case r.Class == delivery.Rejected:
		j.Attempt++
		v.noteSuccess(x, now)
		if r.Keep {
			return dead(delivery.ReasonRejected, r.Detail)
		}
		return settledAs(delivery.OutcomeRejected)
	case r.Class == delivery.Pending:
		v.noteSuccess(x, now)
		return v.goOn(x, now)
	case r.Class == delivery.Permanent && r.Reason != "":
		return dead(r.Reason, r.Detail)
	case r.Class == delivery.Permanent:
		return v.refused(x, now)
	case r.Class == delivery.Withheld:
		if j.State == nil {
			v.metrics.forfeited.Add(float64(j.Weight))
		}
		return v.unsentJob(q, j, r.RetryAfter, cmp.Or(r.Reason, delivery.ReasonRetry), now)
	case r.Class == delivery.Duplicate:
		return settledAs(delivery.OutcomeDuplicate)
	case r.Class == delivery.Cancelled:
		return settledAs(delivery.OutcomeCancelled)
	case r.Class == delivery.Interrupted:
		return placement{where: stays} // the process ends; whoever reads it next decides
	}
	return v.failed(x, now)
}

// noteSuccess records that the job's destination, campaign and sink have taken it: their breakers close.
func (v *judge) noteSuccess(x *sent, now instant) {
	if x.destination != nil {
		v.opt.DestinationReports.Works(x.sink.id, x.destination.name)
	}
	if e := v.campaigns.byID[x.queue.id]; e != nil {
		e.account.Succeeded(now.wall)
		e.failing.Worked()
	}
	v.succeeded(x, delivery.ScopeDestination, now)
	v.succeeded(x, delivery.ScopeCampaign, now)
	v.succeeded(x, delivery.ScopeSink, now)
}

// refusalsCounted is how many refusals in a row by one destination count as the campaign's: heldRefusals hold a campaign only
// if several destinations refuse its jobs.
const refusalsCounted = heldRefusals / 5

// refused returns what happens with a job that will never be taken: it becomes a dead letter. Many in a row hold the campaign or the destination: then one
// job is tried now and then, and one that is refused waits.
func (v *judge) refused(x *sent, now instant) placement {
	held := x.held()
	v.succeeded(x, delivery.ScopeSink, now)
	v.countRefusal(x, delivery.ScopeDestination, now)
	if d := x.destination; d == nil || d.refusals.failures <= refusalsCounted {
		v.countRefusal(x, delivery.ScopeCampaign, now)
	}
	if held {
		return v.again(x.job, v.opt.MaxOpenAge, now) // another job is tried next
	}
	x.job.Attempt++
	return dead(delivery.ReasonRefused, x.result.Detail)
}

// again returns where a job that was sent waits for its next attempt; others of its campaign pass it.
func (v *judge) again(j *delivery.Job, d time.Duration, now instant) placement {
	if j.State == nil {
		j.Account.Tried(j)
	}
	j.Due = now.wall.Add(d)
	return v.wait(j, delivery.ReasonRetry, j.Due, now)
}

// unsentJob returns where a job goes that was not sent: to the front of its queue, if it need not pause.
func (v *judge) unsentJob(q *queue, j *delivery.Job, pause time.Duration, why delivery.Reason, now instant) placement {
	if j.State != nil || pause > 0 {
		j.Due = now.wall.Add(pause)
	}
	switch c := q.campaign; {
	case j.State == nil && pause > 0 && why == delivery.ReasonRetry && c != nil && !remains(j, c) && j.Due.Sub(j.ReadAt) > v.opt.MaxOpenAge:
		return relayed(j, c, now) // in memory it would keep its offset open for as long as this goes on
	case j.State == nil && pause > 0:
		return v.wait(j, why, j.Due, now)
	case j.State != nil || c == nil || q.standing(now) != sending || j.Weight > maxUnits(c):
		return v.decide(j, now)
	}
	return placement{where: atFront, queue: q}
}

// Troubles lists the campaigns of this daemon whose breaker is open, and those of which a destination that takes no jobs keeps some.
func (p *Pacer) Troubles(ctx context.Context) ([]delivery.Trouble, error) {
	return inTurn(ctx, p, func(now instant) (list []delivery.Trouble) {
		maps.DeleteFunc(p.destinations.keeps, func(_ string, k keeper) bool { return !k.lasts(now) })
		for id, k := range p.destinations.keeps {
			list = append(list, delivery.Trouble{Campaign: id, Destination: k.name})
		}
		for _, q := range p.queues.list {
			if c := &q.circuit; q.campaign != nil && (c.isHeld() || c.takesNothing(now.local)) {
				list = append(list, delivery.Trouble{Campaign: q.id, Refused: c.isHeld()})
			}
		}
		return list
	})
}
