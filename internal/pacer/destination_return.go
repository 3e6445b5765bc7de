package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A line is left by as many jobs as their destination has calls for. They go to the fronts of their queues, and when all of them have
// gone, the next ones follow: if they followed sooner, they would pass them. Nothing waits for those that cannot be sent soon, or have
// left their queue in another way.

const (
	// releasedFor is how long jobs that have left a line are waited for at most, and soonReleased within what time their slots have to come.
	releasedFor, soonReleased = time.Second, 100 * time.Millisecond
	// mostReleased bounds the jobs that leave a line at once.
	mostReleased = 256
	// maxLooks bounds the destinations that one turn looks at.
	maxLooks = 256
	// forgetShut is how long a destination that does not work is remembered after its last job.
	forgetShut = time.Hour
)

// returnedJob are the jobs that have left the line of a destination for the front of a queue, and are still there.
type returnedJob struct {
	of    *destination
	queue *queue
	jobs  int
	at    int64 // local time of the last one
	late  bool  // the line does not wait for them
}

// returnedJobs are all such jobs of a queue. The zero value is empty.
type returnedJobs map[*delivery.Job]*returnedJob

// of is the destination whose line the job has left; nil for none.
func (l returnedJobs) of(j *delivery.Job) *destination {
	if r := l[j]; r != nil {
		return r.of
	}
	return nil
}

// left records that a job has left its queue.
func (l returnedJobs) left(j *delivery.Job) {
	r := l[j]
	if r == nil {
		return
	}
	delete(l, j)
	if r.jobs--; r.jobs == 0 {
		r.of.forget(r)
		if r.of.line.len() > 0 && !r.of.awaits() {
			r.of.all.freed = append(r.of.all.freed, r.of)
		}
	}
}

// release records that a job has left the line for the front of a queue.
func (d *destination) returnJob(q *queue, j *delivery.Job, now instant) {
	r := d.returnTo(q)
	if r == nil {
		r = &returnedJob{of: d, queue: q}
		d.releases = append(d.releases, r)
	}
	r.at, r.late = now.local, !q.goesSoon(now)
	r.jobs++
	if q.released == nil {
		q.released = returnedJobs{}
	}
	q.released[j] = r
	q.ask.lined = q.ask.lined || d.line.len() > 0
}

// returnTo are the jobs that are in a queue; nil for none.
func (d *destination) returnTo(q *queue) *returnedJob {
	for _, r := range d.releases {
		if r.queue == q {
			return r
		}
	}
	return nil
}

func (d *destination) forget(r *returnedJob) {
	d.releases = slices.DeleteFunc(d.releases, func(other *returnedJob) bool { return other == r })
}

// awaits reports whether the line waits for jobs that have left it.
func (d *destination) awaits() bool {
	return slices.ContainsFunc(d.releases, func(r *returnedJob) bool { return !r.late })
}

// recall takes the jobs out of the queue that have left the line of a destination, in order.
func (q *queue) recall(d *destination) (jobs []*delivery.Job) {
	r := d.returnTo(q)
	if r == nil {
		return nil
	}
	d.forget(r)
	q.filter(func(_ int64, j *delivery.Job) bool {
		if q.released[j] != r {
			return true
		}
		delete(q.released, j)
		jobs = append(jobs, j)
		return false
	})
	return jobs
}

// goesSoon reports whether the next job of the queue gets a slot and a call soon, as far as that is known.
func (q *queue) goesSoon(now instant) bool {
	return !q.outOfCalls() && max(q.turnAt, q.opens()) <= now.in(soonReleased)
}

// proceed lets as many jobs of the line go to their queues as the destination has calls for. Those that cannot be sent soon go there, too,
// and do not count: their campaign asks for slots for jobs in its queue only.
func (p *Pacer) proceed(d *destination, now instant) {
	if d.line.len() == 0 || d.awaits() {
		return
	}
	set := p.limitsOf(d, now)
	if set.Disabled {
		return
	}
	var jobs, before []*delivery.Job
	for n := p.free(d, nil, set.InFlight, now); n > 0 && d.line.len() > 0 && len(jobs) < mostReleased; {
		j := p.nextOf(d)
		jobs = append(jobs, j)
		if q := p.returnsTo(j, now); q != nil {
			before = append(before, q.recall(d)...) // those that could not be sent soon
			if q.goesSoon(now) {
				n--
			}
		}
	}
	for _, list := range [][]*delivery.Job{jobs, before} {
		for _, j := range slices.Backward(list) { // the last first: each goes to the front
			p.rejoin(d, j, now)
		}
	}
}

// nextOf takes the job out of a line, which must not be empty, that goes next: in an outage one that has no attempt.
func (p *Pacer) nextOf(d *destination) *delivery.Job {
	if d.tripped && d.line.at(0).Attempt > 0 {
		return p.destinations.popUntried(d)
	}
	return p.destinations.pop(d)
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
	if p.drain.stopped || drop(j) {
		return // stays open; it is sent by the daemon that reads it next
	}
	j.ForgetDestination()
	q := p.returnsTo(j, now)
	if q == nil {
		p.replace(j, now)
		return
	}
	q.pushFront(j)
	d.returnJob(q, j, now)
	p.schedule(q)
	p.takes.want(q)
}

// maintainDestinations looks at the destinations for which there is something to do.
func (p *Pacer) maintainDestinations(now instant) {
	l := &p.destinations
	for len(l.freed) > 0 {
		d := l.freed[0]
		l.freed = l.freed[1:]
		p.proceed(d, now)
	}
	l.freed = nil
	for range maxLooks {
		d := l.due(now.local)
		if d == nil {
			return
		}
		p.thinLine(d, now)
		for _, r := range d.releases {
			r.late = now.local-r.at > releasedFor.Microseconds() || !r.queue.goesSoon(now)
		}
		p.proceed(d, now)
		if d.line.len() > 0 {
			l.checkAt(d, now.in(lookEvery))
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
	if d.line.len() == 0 {
		return
	}
	room := p.destinationCapacity(d, p.sinks[d.sink], now)
	p.thin(d, func(i int, j *delivery.Job) bool { return i < room && !p.overdue(j, now) && !p.obstructs(d, j, now) }, now)
}

// thin moves the jobs from a line to timers for which keep returns false.
func (p *Pacer) thin(d *destination, keep func(i int, j *delivery.Job) bool, now instant) {
	var long []*delivery.Job
	p.destinations.filter(d, func(i int, j *delivery.Job) bool {
		ok := keep(i, j)
		if !ok {
			long = append(long, j)
		}
		return ok
	})
	for _, j := range long {
		if j.Expired(now.wall) {
			p.dead(j, delivery.ReasonExpired, "expires-at or the campaign's job_ttl passed before its turn")
		} else {
			p.moveFromDestination(p.sinks[d.sink], d, j, now)
		}
	}
}

// relieveLines moves the jobs of a source below an offset from lines to timers.
func (p *Pacer) relieveLines(src delivery.Source, before int64, now instant) {
	for d := range p.destinations.lines() {
		p.thin(d, func(_ int, j *delivery.Job) bool {
			return j.Source != src || j.Offset >= before || j.From == delivery.FromLane
		}, now)
	}
}
