package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// maxSpend bounds the jobs sent in one turn, so that results and commands are handled in between.
const maxSpend = 512

// dispatchDue sends every job whose slot has come.
func (p *Pacer) dispatchDue(now instant) {
	for range maxSpend {
		if p.slots.len() == 0 {
			return
		}
		q := p.slots.first().item
		at := p.clocks.due(q)
		if at > now.local {
			return
		}
		if !p.dispatchNext(q, at, now) && q.sink != nil {
			p.wake(q.sink) // the free call that it did not use can serve another queue
		}
		p.schedule(q)
	}
}

// dispatchNext uses the queue's first slot, which is due since at, if possible, and reports whether it did.
func (p *Pacer) dispatchNext(q *queue, at int64, now instant) bool {
	if p.forfeit(q, now) > 0 {
		p.takes.want(q)
		return false
	}
	s := q.sink
	if opens := q.opens(); opens > now.local {
		p.refundSlots(q, noRevision)
		p.takes.askLater(q, opens)
		return false
	}
	if s.calls.inFlight >= s.max {
		q.blocked = true
		s.full, s.fullAt = append(s.full, q), now.local
		return false
	}
	if q.outOfCalls() { // it is scheduled again when one comes free
		return false
	}
	if p.returnBeyond(q, now); q.granted == 0 {
		return false
	}
	j := q.goes()
	if d := p.busyAt(s, q, j, now); d != nil { // the next one goes
		p.putApart(q, d, j, now)
		p.makeCapacity(q, now)
		p.takes.want(q)
		p.returnUnused(q)
		return false
	}
	if q.granted < j.Weight { // a heavier job has come to the front since
		p.schedule(q)
		p.takes.want(q)
		return false
	}
	if q.remove(j); j.Expired(now.wall) {
		p.carryOut(j, late(), now)
		p.makeCapacity(q, now)
		p.returnUnused(q)
		return false
	}
	used := q.use(j.Weight)
	s.granted -= j.Weight
	p.send(q, j, used, at, now)
	q.widen()
	p.makeCapacity(q, now)
	p.takes.want(q)
	p.returnUnused(q)
	return true
}

// returnUnused hands back the slots of a queue that has become empty.
func (p *Pacer) returnUnused(q *queue) {
	if q.empty() && q.granted > 0 {
		p.refundSlots(q, noRevision)
	}
}

// forfeit drops the slots that can no longer be used without turning a stall into a burst, and returns how many.
func (p *Pacer) forfeit(q *queue, now instant) (n int64) {
	for q.granted > 0 {
		g := &q.grants[0]
		k := q.tooLate(p.clocks.of(g.From.Shard).store(now.local) - p.opt.lateBy(q.campaign, g.Rate) - 1)
		if k == 0 {
			break
		}
		p.unsent.add(q.use(k))
		n += k
	}
	if n > 0 {
		if q.sink != nil {
			q.sink.granted -= n
		}
		if !q.waitedForCall(now.local, p.opt.LateTolerance.Microseconds()) {
			p.sends.lateAt = now.local
		}
		p.metrics.forfeited.Add(float64(n))
		p.schedule(q)
	}
	return n
}

// lateBy is how late, in microseconds, a slot of the campaign may be handed to its sink.
func (o *Options) lateBy(c *delivery.Campaign, r delivery.Rate) int64 {
	return lateBy(c, o.LateTolerance.Microseconds(), r.Spacing())
}

// sent is the result of one sink call.
type sent struct {
	dispatch
	result    delivery.Result
	lasted    time.Duration
	forfeited bool // it was not sent: its slot had passed too long ago
}

// send passes the job, whose slot came at the local time at, to a goroutine that calls its sink; see deliver.
func (p *Pacer) send(q *queue, j *delivery.Job, used []delivery.Grant, at int64, now instant) {
	s := q.sink
	late := now.local - max(at, q.calls.freeAt, s.fullAt)
	if late > p.opt.LateTolerance.Microseconds()/2 {
		p.sends.lateAt = now.local
		p.opt.Requeuer.Throttle(p.opt.MinQuantum)
	}
	p.begin(dispatch{queue: q, sink: s, job: j, used: used, at: at, latest: at + p.opt.lateBy(q.campaign, q.campaign.Rate)}, now)
}

// begin passes a job to a goroutine.
func (p *Pacer) begin(x dispatch, now instant) {
	x.queue.calls.began(now.local)
	x.sink.calls.began(now.local)
	p.sends.inFlight++
	x.ctx, x.epoch, x.begun, x.since = p.sends.ctx, p.drain.epoch, now.local, p.lastTry(x.job, now)
	if x.destination = p.destinationOf(x.sink, x.job, now); x.destination != nil {
		x.destination.left(x.job)
		x.destination.calls.began(now.local)
		p.destinations.note(x.destination, now.local)
	}
	p.sends.start(x)
}
