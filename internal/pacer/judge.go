package pacer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// failed returns what happens with a job that was not taken for now. The scope that the failure blames may have taken another job since this one was last
// sent. Then the failure is contradicted: it is the job's own, closes nothing, and uses an attempt. So each job comes to its end while its
// sink works, and no job ends because its sink is down.
func (p *Pacer) failed(x *sent, now instant) placement {
	q, s, j, r := x.queue, x.sink, x.job, x.result
	p.noteFailure(x, now)
	held := q.circuit.isHeld() || x.destination != nil && x.destination.isHeld()
	counts := !held && x.usesAttempt(now)
	asked := time.Duration(0)
	if r.Class == delivery.Throttled {
		asked = min(cmp.Or(max(0, r.RetryAfter), defaultRetry), s.maxRetryAfter)
	}
	if blamed, _ := x.breakers(); r.Class == delivery.Throttled && j.Attempt == 0 {
		blamed.throttled += (1 - blamed.throttled) / 128
	}
	p.blame(x, asked, now)
	if r.Class == delivery.Misconfigured && !s.breaker.tripped && now.local >= s.quietUntil {
		s.quietUntil = now.in(logEvery)
		p.opt.Logger.Warn("the sink refused pacer's credentials or settings for a job, which is tried again later: correct the sink's configuration, or "+
			"the destination", "sink", s.id, "campaign", q.id, "job", j.ID, "detail", r.Detail)
	}
	if counts {
		if j.Attempt++; j.Attempt >= p.opt.Retry.MaxAttempts {
			return dead(delivery.ReasonAttemptsExhausted, r.Detail)
		}
	}
	return p.again(j, p.waitOf(x, asked), now)
}

// waitOf is how long the job waits for its next attempt: its back-off, or what was asked for if that is longer. What was asked is varied, so
// that jobs do not come back together. A throttled job without an attempt has no back-off: it is the load that is throttled, not the job.
func (p *Pacer) waitOf(x *sent, asked time.Duration) time.Duration {
	j, r := x.job, x.result
	blamed, _ := x.breakers()
	switch {
	case r.Class == delivery.Throttled && j.Attempt > 0:
		return max(p.opt.Retry.vary(asked), p.opt.Retry.after(j.Attempt))
	case r.Class == delivery.Throttled:
		return p.opt.Retry.vary(asked)
	case r.Class == delivery.Temporary:
		return max(p.opt.Retry.after(max(1, j.Attempt)), min(r.RetryAfter, x.sink.maxRetryAfter))
	case blamed.tripped:
		return unreachedPause
	case r.Class == delivery.Misconfigured:
		return max(p.opt.Retry.after(1+int(j.TimerHops)), p.opt.MaxOpenAge)
	}
	return p.opt.Retry.after(1 + int(j.TimerHops))
}

// scope is what the failure blames.
func (x *sent) scope() delivery.Scope {
	r := x.result
	switch {
	case r.Class == delivery.Temporary && x.destination != nil:
		return delivery.ScopeDestination
	case r.Class == delivery.Temporary:
		return delivery.ScopeCampaign // and the sink, if jobs of several campaigns fail
	case r.Scope == delivery.ScopeDestination && x.destination == nil && !x.sink.destined:
		return delivery.ScopeSink
	case r.Scope == delivery.ScopeDestination && x.destination == nil: // which one it is was not found
		return delivery.ScopeCampaign
	}
	return r.Scope
}

// usesAttempt reports whether the failure is the job's own: an answer of the destination itself, or a contradicted failure. A call without an
// answer also is if the job used an attempt before, or if its campaign has had no answer for unansweredFor.
func (x *sent) usesAttempt(now instant) bool {
	r := x.result
	if r.Class == delivery.Temporary && r.By != delivery.ByNobody {
		return true
	}
	blamed, narrow := x.breakers()
	contradicted := blamed.succeededSince(x.since) && (r.Class != delivery.Throttled || blamed.throttled <= maxThrottled)
	return contradicted || r.Class == delivery.Temporary &&
		(x.job.Attempt > 0 && !blamed.tripped && !narrow.tripped || narrow.unansweredLong(now.local))
}

// breakers are that of the scope that the failure blames, and that of the job's destination or campaign.
func (x *sent) breakers() (blamed, narrow *breaker) {
	narrow = &x.queue.circuit
	if x.destination != nil {
		narrow = &x.destination.breaker
	}
	switch x.scope() {
	case delivery.ScopeDestination:
		return narrow, narrow
	case delivery.ScopeCampaign:
		if x.result.Class != delivery.Temporary {
			return &x.queue.circuit, narrow
		}
	}
	return &x.sink.breaker, narrow // others of the sink contradict a failure of one recipient
}

// causes are those for which failures of a class close a scope.
var causes = map[delivery.ResultClass]delivery.GateCause{
	delivery.Throttled: delivery.GateThrottled, delivery.Misconfigured: delivery.GateMisconfigured,
	delivery.Temporary: delivery.GateFailing, delivery.Unreachable: delivery.GateFailing,
}

// blame counts a failure against the scopes that it blames, and closes those that do not work.
func (p *Pacer) blame(x *sent, asked time.Duration, now instant) {
	q, s, d, r := x.queue, x.sink, x.destination, x.result
	f := failure{job: x.job, cause: causes[r.Class], begun: x.begun}
	f.answered = d == nil && r.Class == delivery.Temporary && r.By != delivery.ByNobody // bad jobs of one destination are few
	switch x.scope() {
	case delivery.ScopeRecipient:
	case delivery.ScopeDestination:
		if r.Gone || !d.succeededSince(x.since) && d.fail(f, now.local) {
			p.closeDestination(x, f.cause, asked, now)
		}
	case delivery.ScopeSink:
		if !s.breaker.succeededSince(x.since) && s.breaker.fail(f, now.local) {
			p.closeSink(x, f.cause, asked, now)
		}
	default:
		sinkFails := !s.breaker.succeededSince(x.since) && r.Class == delivery.Temporary && s.breaker.fail(f, now.local) &&
			(s.breaker.several || s.breaker.tripped)
		if q.circuit.succeededSince(x.since) {
			return
		}
		fails := q.circuit.fail(f, now.local)
		if sinkFails {
			p.closeSink(x, f.cause, asked, now)
		} else if fails {
			s.breaker.failureRun = failureRun{} // they are the campaign's
			p.closeCampaign(x, f.cause, asked, now)
		}
	}
}

// closeSink opens the sink's breaker. Waits that it has asked for, and wrong credentials, hold for all daemons; that it does not work is
// only shown, and each daemon finds it out by itself.
func (p *Pacer) closeSink(x *sent, cause delivery.GateCause, asked time.Duration, now instant) {
	q, s := x.queue, x.sink
	done, first := s.breaker.trip(cause, cmp.Or(asked, probeEvery), now.local)
	if !done {
		return
	}
	call := gateCall{Closure: delivery.Closure{Cause: cause, For: now.until(s.breaker.openUntil)}}
	if first {
		p.logClosed(s, &call, x.result, asked, now)
	}
	p.closeGate(s, call)
	p.takes.askLater(q, s.breaker.openUntil+p.quantum.length) // another campaign tries next
}

// closeCampaign opens the campaign's breaker.
func (p *Pacer) closeCampaign(x *sent, cause delivery.GateCause, asked time.Duration, now instant) {
	q, s := x.queue, x.sink
	since := q.circuit.since
	if !p.openCircuit(q, cause, asked, now) || cause == delivery.GateThrottled {
		return
	}
	if log := p.opt.Logger.With("campaign", q.id, "sink", s.id, "detail", x.result.Detail); s.breaker.succeededSince(since) {
		log.Warn("the sink fails this campaign's jobs and takes others; one a second is tried")
	} else {
		log.Warn("the sink fails this campaign's jobs, and is not known to take others; one a second is tried")
	}
}

// openCircuit lets no job of the campaign pass for a while, hands its slots back, and reports whether that is new.
func (p *Pacer) openCircuit(q *queue, cause delivery.GateCause, asked time.Duration, now instant) (first bool) {
	done, first := q.circuit.trip(cause, cmp.Or(asked, probeEvery), now.local)
	if !done {
		return false
	}
	p.refundSlots(q)
	q.turnAt, q.ask.paced = q.circuit.openUntil, false
	p.takes.askLater(q, q.circuit.openUntil)
	return first
}

// closeDestination opens the breaker of the job's destination.
func (p *Pacer) closeDestination(x *sent, cause delivery.GateCause, asked time.Duration, now instant) {
	d := x.destination
	if cause != delivery.GateThrottled {
		p.reportFailing(x, now)
	}
	done, first := d.trip(cause, cmp.Or(asked, maxProbeEvery), now.local)
	if !done {
		return
	}
	p.publishDestination(d, &delivery.Closure{Cause: cause, For: now.until(d.openUntil)}, now)
	if first && cause != delivery.GateThrottled {
		p.destinations.note(d, now.local)
		p.logClosedDestination(x.sink, d, x.result.Detail, now)
	}
}

// reportFailing reports that a destination does not work, with each call that shows it.
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

// logClosed logs that the sink's breaker was opened. All daemons find wrong settings at once: the one that closes the gate first logs
// the Error.
func (p *Pacer) logClosed(s *sinkState, call *gateCall, r delivery.Result, asked time.Duration, now instant) {
	switch log := p.opt.Logger.With("sink", s.id, "detail", r.Detail); call.Cause {
	case delivery.GateMisconfigured:
		call.then = func(first bool) {
			level := slog.LevelInfo
			if first {
				level = slog.LevelError
			}
			log.Log(context.Background(), level, "the sink refuses pacer's credentials or settings; its gate is closed and "+
				"probed once a second, and no job is given up: correct the sink's configuration, or the destination")
		}
	case delivery.GateThrottled:
		if r.RetryAfter >= logEvery && now.local >= s.quietUntil {
			s.quietUntil = now.in(max(asked, logEvery))
			log.Warn("the destination asks to wait; it is tried now and then, and after max_retry_after at the latest", "asked", r.RetryAfter, "wait", asked)
		}
	default:
		log.Warn("the sink does not work; it is probed once a second")
	}
}

// loggedFailures is how many failures in a row, without a success, the log reports: a single job is given up before that.
const loggedFailures = 10

// noteFailure notes that a job of the campaign was not taken. Few such jobs open no breaker, and wait in timers, where nothing counts them.
func (p *Pacer) noteFailure(x *sent, now instant) {
	e := p.campaigns.byID[x.queue.id]
	if e == nil {
		return
	}
	e.account.Failed(now.wall)
	if e.failing.Failed(); e.failing.Failures() == loggedFailures && !x.queue.circuit.tripped && !x.sink.breaker.tripped {
		success, _ := e.account.Last()
		p.opt.Logger.Warn("the jobs of a campaign fail, and none was delivered since; they are tried again: look at the destination, and at what "+
			"they have in common", "campaign", x.queue.id, "sink", x.sink.id, "last_success", success, "detail", x.result.Detail)
	}
}
