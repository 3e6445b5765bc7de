package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Jobs leave a line for their queues, as many as their destination has calls for, and get their slots there. Those calls are kept for them. If
// the slot of one comes while no call is free, all that have left the line return to its front. The line does not wait for long for those
// that are not sent.

const (
	// soonReturned is within what time the slot of a job has to come that the line waits for, and mostReturned bounds the jobs that leave
	// it at once.
	soonReturned, mostReturned = 100 * time.Millisecond, 256
	// forgetShut is how long a destination that does not work is remembered after its last job.
	forgetShut = time.Hour
)

// putApart takes a job out of its queue, whose destination has no call for it. If it has returned from the line, so do all that have: they
// were before those that wait there now.
func (p *Pacer) putApart(q *queue, d *destination, j *delivery.Job, now instant) {
	jobs := []*delivery.Job{j}
	if !j.Returned {
		q.remove(j)
	} else {
		jobs = takeOut(q, func(_ int64, other *delivery.Job) bool {
			return other.Returned && other.Destination == j.Destination
		})
	}
	for _, j := range slices.Backward(jobs) {
		p.carryOut(j, p.apart(q, d, j, d.left(j), now), now)
	}
}

// goesSoon reports whether the next job of the queue gets a slot and a call soon, as far as that is known.
func (q *queue) goesSoon(now instant) bool {
	return !q.outOfCalls() && q.turn() <= now.in(soonReturned)
}

// proceed lets as many jobs of the line go to their queues as the destination has calls for. Those that cannot be sent soon go there, too,
// and do not count: their campaign asks for slots for jobs in its queue only.
func (p *Pacer) proceed(d *destination, now instant) {
	p.limitsOf(d, now)
	n := d.free(now.local) - d.returned
	for left := 0; n > 0 && d.line.len() > 0 && left < mostReturned; left++ {
		j := d.line.pop(d.tripped && d.line.at(0).Attempt > 0) // in an outage one that has no attempt
		q := p.returnsTo(d, j, now)
		if q == nil {
			p.replace(j, now)
			continue
		}
		if j.Returned = true; q.goesSoon(now) {
			d.returned++
			n--
		}
		p.carryOut(j, placement{where: queued, queue: q}, now)
	}
	if d.returned > 0 {
		p.destinations.checkAt(d, now.local+2*p.quantum.length) // slots come once a quantum: those that have not been sent by then may have gone
	}
}

// returnsTo is the queue that a job of a line returns to; nil if it has to be placed anew.
func (p *Pacer) returnsTo(d *destination, j *delivery.Job, now instant) *queue {
	e := p.campaign(j.Campaign, now)
	if e == nil {
		return nil
	}
	if q := p.queue(e); q.standing(now) == sending && q.sink == d.at && j.Weight <= maxUnits(q.campaign) {
		return q
	}
	return nil
}

// maintainDestinations does the periodic work of destinations.
func (p *Pacer) maintainDestinations(now instant) {
	l := &p.destinations
	for range perTurn {
		d := l.due(now.local)
		if d == nil {
			return
		}
		room := int64(d.capacity(p.opt.MaxOpenAge, now))
		p.moveOut(&d.line, func(i int64, j *delivery.Job) bool { // whose turn will not come soon, and those that must not stay in memory
			return i >= room || p.campaigns.overdue(j, p.opt.MaxOpenAge, now) || d.obstructs(j, p.opt.MaxOpenAge, now)
		}, func(j *delivery.Job) placement { return d.timer(j, &p.opt, now) }, now)
		d.returned = 0 // those that have not been sent by now may never be
		p.proceed(d, now)
		if d.line.len() > 0 {
			l.checkAt(d, now.in(checkEvery))
		}
		if d.tripped && d.idle() {
			if now.local-d.openUntil > forgetShut.Microseconds() {
				d.breaker = breaker{}
			} else {
				l.checkAt(d, max(d.openUntil, now.local)+forgetShut.Microseconds()+1)
			}
		}
		l.note(d, now.local)
	}
}
