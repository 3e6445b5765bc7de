package pacer

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A job whose destination is closed, disabled or busy waits apart from the others of its campaign: in the line of its destination if its
// turn is near, in a timer if not. It uses no slot and no attempt meanwhile.

const (
	// mostApart is how long such a job waits in a timer at a time.
	mostApart = 5 * time.Minute
	// mostLines bounds the jobs in all lines, besides their bytes, and mostLine those in one.
	mostLines, mostLine = 16_384, 1024
	// shutLine is how many jobs wait in memory for a destination that is closed for a moment.
	shutLine = 64
	// promptly is how soon the first answer is waited for before a destination gets more calls.
	promptly = time.Second
	// checkEvery is the time between two looks at a destination with waiting jobs.
	checkEvery = 250 * time.Millisecond
)

// findDestinations finds the destinations of jobs whose records name none, in the goroutine that has read them: it may take long.
func (o *Options) findDestinations(ctx context.Context, jobs []*delivery.Job) {
	snapshot := o.Catalog.Snapshot()
	for _, j := range jobs {
		if ctx.Err() != nil {
			return
		}
		c := snapshot.Campaign(j.Campaign)
		if c == nil || j.Flaw != nil || j.Duplicate || j.Cancelled {
			continue
		}
		sink, _ := o.Sinks.Resolve(c.Sink)
		if _, known := j.DestinationAt(sink); known {
			continue
		}
		if find := o.Destinations(sink); find != nil {
			name := find(j)
			j.SetFoundDestination(sink, name[:min(len(name), delivery.MaxIDLength)])
		}
	}
}

// destinationOf is the job's destination; nil if it has none. A job whose campaign got another sink since it was read has none there.
func (p *placing) destinationOf(s *sinkState, j *delivery.Job, now instant) *destination {
	name, _ := j.DestinationAt(s.id)
	if !s.destined || name == "" {
		return nil
	}
	d := p.destinations.get(destinationKey{s.id, name})
	d.at = s
	p.limitsOf(d, now)
	p.destinations.keep(j, keeper{destination: d, at: now.local}, now)
	return d
}

// keep notes that a job waits for a destination that takes none: one for each campaign.
func (l *destinations) keep(j *delivery.Job, is keeper, now instant) {
	was := l.keeps[j.Campaign]
	if is.lasts(now) && (!was.lasts(now) || was.destinationKey == is.destinationKey) {
		l.keeps[strings.Clone(j.Campaign)] = is
	}
}

// lasts reports whether jobs wait for the destination still: each is looked at after mostApart at the latest, and in half a minute where
// there is no such destination.
func (k keeper) lasts(now instant) bool {
	switch {
	case k.destination == nil:
		return false
	case k.absent:
		return k.at > now.local-time.Minute.Microseconds()
	}
	return (k.set.Disabled || k.takesNothing(now.local)) && k.at > now.local-2*mostApart.Microseconds()
}

// limitsOf reads what is set for a destination. If it was changed, all begins anew: another address may work, and a user who enables it
// expects a try now.
func (p *placing) limitsOf(d *destination, now instant) {
	before := d.set.Version
	d.absentHold = max(fewestRefusals, (absentRefusals-1)/max(1, p.opt.Fleet())+1)
	if d.set = p.opt.DestinationLimits(d.sink, d.name); before == d.set.Version || before == 0 {
		return
	}
	if d.shut(now.local) {
		p.moveGate(d.destinationKey, nil, nil, now)
	}
	d.breaker, d.window, d.turnAt = breaker{movedAt: now.local}, 0, 0
	d.renewedAt = now.local
	if d.line.len() > 0 {
		p.destinations.checkAt(d, now.local)
	}
}

// closedTo returns the destination that a placed job waits for, apart from those that need a slot; nil if it need not wait.
func (p *placing) closedTo(s *sinkState, j *delivery.Job, now instant) *destination {
	d := p.destinationOf(s, j, now)
	if d == nil || !d.open(now.local) && d.line.len() < d.capacity(p.opt.MaxOpenAge, now) && !d.obstructs(j, p.opt.MaxOpenAge, now) {
		return nil
	}
	return d
}

// busyAt returns the destination of a job if it may not go now, and nil if it may. q is the queue whose slot it has, nil for a step
// without one. Calls are kept for the jobs that have left the line, and for the line.
func (p *placing) busyAt(s *sinkState, q *queue, j *delivery.Job, now instant) *destination {
	d := p.destinationOf(s, j, now)
	if d == nil {
		return nil
	}
	free := d.free(now.local)
	if q != nil && !j.Returned {
		if free -= d.returned; d.line.len() > 0 {
			free = 0
		}
	}
	if free > 0 && !d.obstructs(j, p.opt.MaxOpenAge, now) {
		return nil
	}
	return d
}

// left records that a job is in its queue no more, and reports whether it had come there from the line.
func (d *destination) left(j *delivery.Job) (returned bool) {
	if returned = j.Returned; returned {
		d.returned, j.Returned = max(0, d.returned-1), false
	}
	return returned
}

// free is how many further calls to the destination may begin.
func (d *destination) free(now int64) int {
	switch {
	case d.set.Disabled, d.open(now):
		return 0
	case d.tripped: // half-open
		return 1 - d.calls.inFlight
	}
	free := d.maxCalls() - d.calls.inFlight
	hold := cmp.Or(d.refusals.hold, d.absentHold)
	if d.succeededAt == 0 && d.failures == 0 && hold < heldRefusals && d.calls.lately(now) < promptly.Microseconds() {
		free = min(free, hold-d.refusals.failures-d.calls.inFlight) // perhaps nothing is there: no more are sent than show it
	}
	return free
}

// maxCalls is how many calls the destination may have.
func (d *destination) maxCalls() int { return d.flow.maxCalls(d.at.max, d.set.InFlight) }

// capacity is how many jobs may wait in its line: those whose turn comes while they may be open.
func (d *destination) capacity(openAge time.Duration, now instant) int {
	switch {
	case d.set.Disabled, now.until(d.openUntil) > openAge:
		return 0
	case d.shut(now.local):
		return shutLine
	}
	each := max(d.calls.lately(now.local), time.Millisecond.Microseconds())
	return int(min(max(int64(d.maxCalls())*openAge.Microseconds()/each, 1), mostLine))
}

// apart returns where a job waits for its destination: in its line, or in a timer.
func (p *placing) apart(q *queue, d *destination, j *delivery.Job, front bool, now instant) placement {
	defer p.destinations.note(d, now.local)
	if j.State != nil { // its next step needs no slot, and has a place in timers anyway
		return q.stepTimer(d.at, j, now.timeOf(max(d.openUntil, now.in(p.opt.MaxOpenAge))), true, now)
	}
	all, openAge := d.line.all, p.opt.MaxOpenAge
	if d.line.len() >= d.capacity(openAge, now) || all.jobs >= mostLines || all.bytes+j.Size > p.opt.MaxQueueBytes ||
		p.campaigns.overdue(j, openAge, now) || d.obstructs(j, openAge, now) {
		return d.timer(j, &p.opt, now)
	}
	return placement{where: atDestination, destination: d, front: front}
}

// obstructs reports whether a job would hold up its lane with a call that most likely ends only by its timeout: a lane is read no further
// than some thousand jobs beyond the first that is open. Such a destination is tried with jobs from timers, where this one goes, too.
func (d *destination) obstructs(j *delivery.Job, openAge time.Duration, now instant) bool {
	return j.From == delivery.FromLane && d.tripped && 4*d.calls.lately(now.local) > openAge.Microseconds()
}

// timer returns the time a job waits in a timer for its destination. If the destination is busy or has asked for a wait, the job waits
// until its turn. If it does not work, the wait is as long as the failure has lasted so far. The back-off of the job bounds it, so that a
// brief failure costs no long wait.
func (d *destination) timer(j *delivery.Job, o *Options, now instant) placement {
	wait := o.Retry.after(1 + int(j.TimerHops))
	switch {
	case d.set.Disabled:
	case d.tripped:
		wait = min(wait, now.since(d.trippedAt))
	default:
		each := max(cmp.Or(d.calls.lately(now.local), time.Second.Microseconds())/int64(max(1, d.maxCalls())), 1)
		d.turnAt = min(max(d.turnAt, d.openUntil, now.in(o.MaxOpenAge)), now.in(mostApart)) + each
		wait = now.until(d.turnAt)
	}
	wait = max(min(max(wait, now.until(d.openUntil)), mostApart), o.MaxOpenAge)
	return toTimer(delivery.ReasonDestination, now.wall.Add(wait))
}
