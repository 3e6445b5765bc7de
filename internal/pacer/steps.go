package pacer

import (
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A request of several steps takes a slot for the first one only. Between its steps the job waits here for a moment, or in a timer with
// its state. This file decides its next step when its time has come. A step of a campaign that may not send waits as well.

const (
	// never is a local time that does not come.
	never = math.MaxInt64
	// heldStep is how long a step of a campaign that may not send waits at a time, and longestHeldStep the same where the
	// campaign's schedule says that it will be longer.
	heldStep        = time.Minute
	longestHeldStep = 10 * time.Minute
)

// goOn returns where a job waits for its next step, whose state the sink has said. The state is durable before the step begins, unless
// the call that led to it may be repeated.
func (v *judge) goOn(x *sent, now instant) placement {
	j, r := x.job, x.result
	if j.State == nil {
		j.Account.Tried(j) // its slot is used
	}
	j.State, j.Attempt = r.State, 0
	at := now.wall.Add(max(0, r.RetryAfter))
	if r.Repeatable && !revoked(j.Source) {
		return v.waitStep(x.queue, x.sink, j, at, now)
	}
	to := x.queue.stepTimer(x.sink, j, at, false, now)
	to.bound = true
	return to
}

// waitStep returns where a job waits for the time of its step: here if that is near, and there is memory; in a timer otherwise.
func (p *placing) waitStep(q *queue, s *sinkState, j *delivery.Job, at time.Time, now instant) placement {
	if at.Sub(j.ReadAt) >= p.opt.MaxOpenAge || !p.fitsStep(j, s) {
		return q.stepTimer(s, j, at, false, now)
	}
	j.Due = at
	return placement{where: delayed, Reroute: delivery.Reroute{Due: at}}
}

// fitsStep reports whether there is memory for a job whose request has begun.
func (p *placing) fitsStep(j *delivery.Job, s *sinkState) bool {
	return s.followUps.size+p.aside.steps+j.Size <= p.opt.MaxQueueBytes
}

// stepTimer books the time a job with its state comes back from a timer: at, or later if there is more to do than the ceiling allows.
// late: the job's time had come before.
func (q *queue) stepTimer(s *sinkState, j *delivery.Job, at time.Time, late bool, now instant) placement {
	until := now.in(at.Sub(now.wall))
	j.Due = at.Add(time.Duration(s.followUps.book(q, until, late, now.local)-until) * time.Microsecond)
	return toTimer(delivery.ReasonStep, j.Due)
}

// decideStep returns where a job waits whose request has begun, and whose campaign is neither cancelled nor completed.
func (p *placing) decideStep(j *delivery.Job, e *effective, now instant) placement {
	if standingOf(e.campaign, e.sink, now.wall) == held {
		wait := heldStep
		if !e.next.IsZero() {
			wait = min(max(wait, e.next.Sub(now.wall)), longestHeldStep)
		}
		j.Due = now.wall.Add(wait)
		return toTimer(delivery.ReasonStep, j.Due)
	}
	q, s := p.queue(e), e.sink
	if ready := j.ReadyAt(); ready.After(now.wall) {
		return p.waitStep(q, s, j, ready, now)
	}
	if d := p.closedTo(s, j, now); d != nil {
		return p.apart(q, d, j, false, now)
	}
	f := &s.followUps
	turn := max(f.turnOf(q, now.local), s.breaker.openUntil)
	if !p.fitsStep(j, s) || now.timeOf(turn).Sub(j.ReadAt) >= p.opt.MaxOpenAge {
		return q.stepTimer(s, j, now.timeOf(max(now.local, s.breaker.openUntil)), true, now)
	}
	return placement{where: queued, queue: q}
}

// sendFollowUp sends the sink's next follow-up, and reports whether there was one that could be sent.
func (p *Pacer) sendFollowUp(s *sinkState, now instant) bool {
	f := &s.followUps
	if f.ready == 0 || f.next > now.local || s.breaker.open(now.local) || s.calls.inFlight >= s.max {
		return false
	}
	if s.breaker.tripped && s.calls.inFlight > 0 { // one job is tried
		f.next = now.local + followUpSlack.Microseconds()
		return false
	}
	j := f.nextJob(now.local, func(q *queue) bool {
		return !q.outOfCalls() && q.circuit.openUntil <= now.local && (!q.circuit.tripped || q.calls.inFlight == 0)
	})
	if j == nil {
		return false
	}
	e := p.campaign(j.Campaign, now)
	if e == nil || e.sink != s || standingOf(e.campaign, s, now.wall) != sending || j.Expired(now.wall) {
		p.replace(j, now)
		return true
	}
	q := p.queue(e)
	if d := p.busyAt(s, nil, j, now); d != nil {
		p.carryOut(j, p.apart(q, d, j, false, now), now)
		return true
	}
	p.begin(dispatch{queue: q, sink: s, job: j, at: now.local, latest: never}, now)
	return true
}

// wakeFollowUp gives a call that came free to a follow-up. While queues wait for calls as well, they take turns.
func (p *Pacer) wakeFollowUp(s *sinkState, now instant) {
	if f := &s.followUps; len(s.full) > 0 && f.last {
		f.last = false
	} else {
		f.last = p.sendFollowUp(s, now)
	}
}

// maintainFollowUps moves those on that were read too long ago.
func (p *Pacer) maintainFollowUps(s *sinkState, now instant) {
	latest := now.wall.Add(-p.opt.MaxOpenAge * 3 / 2)
	p.moveOut(&s.followUps, func(_ int64, j *delivery.Job) bool { return j.ReadAt.Before(latest) }, func(j *delivery.Job) placement {
		return p.queues.byID[j.Campaign].stepTimer(s, j, now.timeOf(max(now.local, s.breaker.openUntil)), true, now)
	}, now)
	s.followUps.forget(now.local)
}

// takeSteps takes out the follow-ups of the queue's campaign.
func (q *queue) takeSteps() []*delivery.Job {
	if q.sink == nil || q.steps.len() == 0 {
		return nil
	}
	return takeOut(&q.sink.followUps, func(_ int64, j *delivery.Job) bool { return j.Campaign == q.id })
}
