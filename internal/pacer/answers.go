package pacer

import (
	"cmp"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// This file applies answers to jobs that have a destination of their own: what they say is of the destination, and closes neither the
// gate of its sink nor the circuit of the campaign.

// ofDestination tells whether the answer is about the job's own destination.
func (x *sent) ofDestination() bool {
	if x.destination == nil {
		return false
	}
	switch x.result.Class {
	case delivery.Permanent:
		return x.result.Reason == ""
	case delivery.Temporary:
		return true
	case delivery.Throttled, delivery.Unreachable, delivery.Misconfigured:
		return x.result.Scope == delivery.ScopeDestination
	}
	return false
}

// callEndedAt records the end of a call to a destination.
func (p *Pacer) callEndedAt(x *sent, now instant) {
	d := x.destination
	if x.forfeited {
		d.calls.inFlight--
		return
	}
	d.calls.ended(x.begun, now.local)
	switch x.result.Class {
	case delivery.Delivered, delivery.Rejected, delivery.Permanent, delivery.Pending:
		d.flow.ended(true, x.sink.max)
	case delivery.Temporary:
		d.flow.ended(x.result.By == delivery.ByDestination, x.sink.max)
	case delivery.Throttled, delivery.Unreachable, delivery.Misconfigured:
		d.flow.ended(false, x.sink.max)
	}
}

// settledAt lets the destination's next jobs go.
func (p *Pacer) settledAt(d *destination, now instant) {
	p.proceed(d, now)
	p.destinations.note(d, now.local)
}

// destinationWorked records that a destination has taken a job.
func (p *Pacer) destinationWorked(x *sent, now instant) {
	if p.limitsOf(x.destination, now); x.stale() {
		return
	}
	if r := p.opt.DestinationReports; r != nil {
		r.Works(x.sink.id, x.destination.name)
	}
	if x.destination.worked(now.local) {
		p.destinationRecovered(x, now)
	}
}

func (p *Pacer) destinationRecovered(x *sent, now instant) {
	p.opt.Logger.Debug("a destination works again", "sink", x.sink.id, "destination", x.destination.name)
	p.publishDestination(x.destination, nil, now)
}

// settleAt applies an answer that is about the job's own destination.
func (p *Pacer) settleAt(x sent, now instant) {
	p.limitsOf(x.destination, now)
	if x.stale() {
		p.addToDestination(x.sink, x.destination, x.job, true, now) // what the destination is now is tried
		return
	}
	switch x.result.Class {
	case delivery.Permanent:
		p.refusedAt(x, now)
	case delivery.Throttled:
		p.throttledAt(x, now)
	default:
		p.notTakenAt(x, now)
	}
}

// stale tells whether the call began before its destination was changed: the answer says nothing of what it is now.
func (x *sent) stale() bool { return x.begun < x.destination.renewedAt }

// refusedAt handles a job that its destination will never take. Many in a row hold the destination. Only the first of them count for the
// campaign, which is held when several destinations refuse its jobs.
func (p *Pacer) refusedAt(x sent, now instant) {
	q, s, d, j := x.queue, x.sink, x.destination, x.job
	held := d.isHeld()
	first, recovered := d.refused(now.local)
	if recovered {
		p.destinationRecovered(&x, now)
	}
	if d.isHeld() {
		p.tripAt(&x, delivery.GateRefused, now)
	}
	if first {
		p.opt.Logger.Error("a destination refused many jobs in a row and took none; it is held, tried again and again, and no other job for "+
			"it is given up: look at its dead letters and repair", "sink", s.id, "destination", d.name, "refused", heldRefusals, "detail", x.result.Detail)
	}
	switch {
	case held:
		p.sinkWorked(s, now)
		p.waitAlone(j, p.opt.MaxOpenAge, now) // another job is tried next
	case d.refusals.failures > refusalsCounted:
		p.sinkWorked(s, now)
		j.Attempt++
		p.dead(j, delivery.ReasonRefused, x.result.Detail)
	default:
		p.refused(q, s, j, x.result, now)
	}
}

// throttledAt makes the destination wait on all daemons. A wait is believed up to the sink's max_retry_after; then one job tries.
func (p *Pacer) throttledAt(x sent, now instant) {
	s, d := x.sink, x.destination
	asked := cmp.Or(max(0, x.result.RetryAfter), defaultRetry)
	wait := min(asked, s.maxRetryAfter)
	d.wait(now.in(wait), asked > wait, now.local)
	p.publishDestination(d, &delivery.Closure{Cause: delivery.GateThrottled, For: wait, Probe: asked > wait}, now)
	p.addToDestination(s, d, x.job, true, now)
}

// notTakenAt handles a job that its destination did not take for now.
func (p *Pacer) notTakenAt(x sent, now instant) {
	s, d, j, r := x.sink, x.destination, x.job, x.result
	suspect := j.Attempt > 0 || r.By == delivery.ByNobody && d.workedAt > x.since
	probe := d.halfOpen(now.local)
	outage := d.failed(failure{
		again: r.Class == delivery.Temporary && suspect, sink: r.Class != delivery.Temporary,
		answered: r.Class == delivery.Temporary && r.By == delivery.ByDestination,
	}, x.begun, now.local) || r.Gone
	counts := x.usesAttemptAt(outage, probe, suspect, now)
	if outage {
		cause := delivery.GateFailing
		if r.Class == delivery.Misconfigured {
			cause = delivery.GateMisconfigured
		}
		p.tripAt(&x, cause, now)
	}
	switch {
	case p.drain.stopped: // stays open; it is tried again by the daemon that reads it next
	case r.Class == delivery.Temporary:
		p.retry(j, r, counts, min(r.RetryAfter, s.maxRetryAfter), now)
	case outage:
		p.addToDestination(s, d, j, !probe, now) // after a probe another job is tried next
	case r.Class == delivery.Unreachable:
		p.retry(j, r, counts, 0, now)
	default:
		waits := int(j.TimerHops)
		if delivery.Reason(j.Reason) == delivery.ReasonDestination { // these were the destination's, which asked for them or did not work
			waits = 0
		}
		p.waitAlone(j, max(p.opt.Retry.after(1+waits), p.opt.MaxOpenAge), now)
	}
}

// usesAttemptAt is usesAttempt, judged by what the destination has done.
func (x *sent) usesAttemptAt(outage, probe, suspect bool, now instant) bool {
	r, d := x.result, x.destination
	long := d.unansweredLong(now.local)
	switch {
	case d.isHeld(), r.Class == delivery.Misconfigured:
		return false
	case outage:
		return probe && r.Class == delivery.Temporary && (r.By == delivery.ByDestination || r.By == delivery.ByNobody && (x.job.Attempt > 0 || long))
	case r.Class == delivery.Unreachable:
		return d.workedAt > x.since
	}
	return r.By != delivery.ByNobody || suspect || long
}

// tripAt closes the gate of a destination that does not work, on all daemons.
func (p *Pacer) tripAt(x *sent, cause delivery.GateCause, now instant) {
	d := x.destination
	p.reportFailing(x, now)
	done, first := d.trip(cause, now.local)
	if !done {
		return
	}
	p.publishDestination(d, &delivery.Closure{Cause: d.cause, For: now.until(d.openUntil), Probe: true}, now)
	if !first {
		return
	}
	p.destinations.note(d, now.local)
	p.logClosedDestination(x.sink, d, x.result.Detail, now)
}

// reportFailing tells that a destination does not work, with each call that shows it.
func (p *Pacer) reportFailing(x *sent, now instant) {
	d, reports := x.destination, p.opt.DestinationReports
	switch {
	case reports == nil:
	case x.result.Gone:
		reports.Gone(x.sink.id, d.name, x.result.Detail)
	default:
		since := now.local
		for _, s := range []*failureRun{&d.failureRun, &d.refusals} {
			if s.failures > 0 {
				since = min(since, s.since)
			}
		}
		reports.Fails(x.sink.id, d.name, now.wall.Add(-time.Duration(now.local-since)*time.Microsecond), x.result.Detail)
	}
}
