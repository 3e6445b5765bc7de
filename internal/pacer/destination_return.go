package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Jobs leave a line for the fronts of their queues, as many as their destination has calls for, and get their slots there. One whose slot
// comes while no call is free returns to the front of the line. The line does not wait for long for those that are not sent.

const (
	// soonReturned is within what time the slot of a job has to come that the line waits for, and mostReturned bounds the jobs that leave
	// it at once.
	soonReturned, mostReturned = 100 * time.Millisecond, 256
	// maxChecks bounds the destinations that one turn looks at.
	maxChecks = 256
	// forgetShut is how long a destination that does not work is remembered after its last job.
	forgetShut = time.Hour
)

// putApart takes a job out of its queue, whose destination has no call for it. If it has returned from the line, so do all that have: they
// were before those that wait there now.
func (p *Pacer) putApart(q *queue, d *destination, j *delivery.Job, now instant) {
	jobs := []*delivery.Job{j}
	if j.Moves&delivery.Returned != 0 {
		jobs = q.recall(j.Destination)
	} else {
		q.remove(j)
	}
	for _, j := range slices.Backward(jobs) {
		p.carryOut(j, p.apart(q.sink, d, j, d.left(j), now), now)
	}
}

// recall takes the jobs out of the queue that have returned from the line of a destination, in order.
func (q *queue) recall(destination string) (jobs []*delivery.Job) {
	if q.returning == 0 {
		return nil
	}
	q.filter(func(_ int64, j *delivery.Job) bool {
		returned := j.Moves&delivery.Returned != 0 && j.Destination == destination
		if returned {
			jobs = append(jobs, j)
		}
		return !returned
	})
	return jobs
}

// goesSoon reports whether the next job of the queue gets a slot and a call soon, as far as that is known.
func (q *queue) goesSoon(now instant) bool {
	return !q.outOfCalls() && max(q.turnAt, q.opens()) <= now.in(soonReturned)
}

// proceed lets as many jobs of the line go to their queues as the destination has calls for. Those that cannot be sent soon go there, too,
// and do not count: their campaign asks for slots for jobs in its queue only.
func (p *Pacer) proceed(d *destination, now instant) {
	set := p.limitsOf(d, now)
	if set.Disabled {
		return
	}
	var jobs, before []*delivery.Job
	for n := p.free(d, nil, set.InFlight, now) - d.returned; n > 0 && d.line.len() > 0 && len(jobs) < mostReturned; {
		j := d.line.pop(d.tripped && d.line.at(0).Attempt > 0) // in an outage one that has no attempt
		jobs = append(jobs, j)
		if q := p.returnsTo(j, now); q != nil {
			before = append(before, q.recall(j.Destination)...)
			if q.goesSoon(now) {
				d.returned++
				n--
			}
		}
	}
	for _, j := range slices.Backward(append(before, jobs...)) { // the last first: each goes to the front
		p.rejoin(d, j, now)
	}
	if d.returned > 0 && d.line.len() > 0 {
		p.destinations.checkAt(d, now.local+2*p.quantum.length) // slots come once a quantum
	}
}

// returnsTo is the queue to which a job of a line returns; nil if it has to be placed anew.
func (p *Pacer) returnsTo(j *delivery.Job, now instant) *queue {
	e := p.campaign(j.Campaign, now)
	if e == nil {
		return nil
	}
	if q := p.queue(e); q.standing(now) == sending && j.Weight <= maxUnits(q.campaign) {
		return q
	}
	return nil
}

// rejoin puts a job that has waited for its destination at the front of its queue.
func (p *Pacer) rejoin(d *destination, j *delivery.Job, now instant) {
	q := p.returnsTo(j, now)
	if q == nil || q.sink.id != d.sink {
		p.replace(j, now)
		return
	}
	j.Moves |= delivery.Returned
	q.ask.lined = q.ask.lined || d.line.len() > 0
	p.carryOut(j, placement{where: atFront, queue: q}, now)
}

// maintainDestinations looks at the destinations for which there is something to do.
func (p *Pacer) maintainDestinations(now instant) {
	l := &p.destinations
	for range maxChecks {
		d := l.due(now.local)
		if d == nil {
			return
		}
		p.thinLine(d, now)
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

// thinLine moves jobs whose turn will not come soon from the line to timers: the last ones, and those that must not stay in memory.
func (p *Pacer) thinLine(d *destination, now instant) {
	if d.line.len() > 0 {
		room := int64(p.destinationCapacity(d, p.sinkByID(d.sink), now))
		p.thin(d, func(i int64, j *delivery.Job) bool { return i >= room || p.overdue(j, now) || p.obstructs(d, j, now) }, now)
	}
}

// thin moves jobs from a line to timers.
func (p *Pacer) thin(d *destination, moves func(i int64, j *delivery.Job) bool, now instant) {
	for _, j := range takeOut(&d.line, moves) {
		if j.Expired(now.wall) {
			p.carryOut(j, late(), now)
		} else {
			p.carryOut(j, p.destinationTimer(p.sinkByID(d.sink), d, j, now), now)
		}
	}
}
