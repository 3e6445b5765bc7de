package pacer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	defaultRetry   = time.Second            // a throttled answer that does not say how long
	unreachedPause = 200 * time.Millisecond // before a job that a closed gate stopped is tried again
	tellEvery      = time.Minute            // of lines about single answers of a sink
)

// settle applies a sink's answer to its job and to the sink's gate.
func (p *Pacer) settle(r sent, now instant) {
	q, s, j := r.queue, r.sink, r.job
	p.sends.inFlight--
	if !r.forfeited {
		s.latency += (r.took.Microseconds() - s.latency) / 8
	}
	p.callEnded(q, &r, now)
	if len(s.full) > 0 {
		s.fullAt = now.local
	}
	p.wakeFollowUp(s, now)
	p.wake(s)
	if r.destination != nil {
		defer p.settledAt(r.destination, now)
	}
	if r.forfeited || r.result.Class == delivery.Withheld || r.result.Class == delivery.Duplicate {
		p.unsent.add(r.used)
	}
	if r.epoch != p.drain.epoch {
		return // outlived a drain; the job has been read again
	}
	if r.forfeited {
		p.metrics.forfeited.Add(float64(j.Weight))
		p.putBack(q, j, 0, now)
		return
	}
	p.noteFailure(&r, now)
	if r.ofDestination() {
		p.settleAt(r, now)
		return
	}
	switch r.result.Class {
	case delivery.Delivered:
		j.Attempt++
		j.Settle(delivery.OutcomeDelivered)
		p.worked(&r, now)
	case delivery.Rejected:
		j.Attempt++
		if r.result.Keep {
			p.dead(j, delivery.ReasonRejected, r.result.Detail)
		} else {
			j.Settle(delivery.OutcomeRejected)
		}
		p.worked(&r, now)
	case delivery.Pending:
		p.worked(&r, now)
		p.goOn(s, j, r.result, now)
	case delivery.Permanent:
		if r.result.Reason != "" {
			p.dead(j, r.result.Reason, r.result.Detail)
			return
		}
		p.refused(q, s, j, r.result, now)
	case delivery.Throttled:
		p.throttled(q, s, j, r.result, now)
	case delivery.Temporary, delivery.Unreachable, delivery.Misconfigured:
		p.notTaken(r, now)
	case delivery.Withheld:
		if j.State == nil {
			p.metrics.forfeited.Add(float64(j.Weight))
		}
		p.putBack(q, j, r.result.RetryAfter, now)
	case delivery.Duplicate:
		j.Settle(delivery.OutcomeDuplicate)
	case delivery.Interrupted:
		p.drain.doubt++
	}
}

// notedFailures is how many failures in a row, without a success, the log tells of: a single job is given up before that.
const notedFailures = 10

// noteFailure notes that a sink did not take a job for now. Few such jobs open no circuit, and wait in timers, where nothing counts them.
func (p *Pacer) noteFailure(x *sent, now instant) {
	e := p.campaigns.byID[x.queue.id]
	switch x.result.Class {
	case delivery.Temporary, delivery.Unreachable, delivery.Misconfigured, delivery.Throttled:
		if e == nil {
			return
		}
	default:
		return
	}
	e.account.Failed(now.wall)
	if e.failing.Failed(); e.failing.Failures() == notedFailures && x.queue.circuit.closed() {
		success, _ := e.account.Last()
		p.opt.Logger.Warn("the jobs of a campaign fail, and none has been taken since; they are tried again: look at the destination, and at what "+
			"they have in common", "campaign", x.queue.id, "sink", x.sink.id, "last_success", success, "detail", x.result.Detail)
	}
}

// throttled makes whatever the destination asked to slow down wait: the recipient's job, the campaign on this daemon, or
// the sink on every daemon. A wait is believed up to the sink's max_retry_after; then one job a second is tried.
func (p *Pacer) throttled(q *queue, s *sinkState, j *delivery.Job, r delivery.Result, now instant) {
	asked := cmp.Or(max(0, r.RetryAfter), defaultRetry)
	d := min(asked, s.maxRetryAfter)
	if asked >= tellEvery && now.local >= s.quiet.wait {
		s.quiet.wait = now.in(max(d, tellEvery))
		p.opt.Logger.Warn("the destination asks to wait; it is tried again after that, and after max_retry_after at the latest",
			"sink", s.id, "campaign", q.id, "asked", asked, "wait", d)
	}
	switch r.Scope {
	case delivery.ScopeRecipient:
		p.waitAlone(j, d, now)
	case delivery.ScopeCampaign:
		q.circuit.wait(now.in(d))
		p.pauseQueue(q)
		p.putBack(q, j, 0, now)
	default:
		p.closeGate(s, gateCall{Closure: delivery.Closure{Cause: delivery.GateThrottled, For: d, Probe: asked > d}}, now)
		p.putBack(q, j, 0, now)
	}
}

// notTaken handles a job that the sink did not take for now.
func (p *Pacer) notTaken(x sent, now instant) {
	q, s, j, r := x.queue, x.sink, x.job, x.result
	opens := max(s.breaker.openUntil, q.circuit.openUntil)
	probe := opens <= now.local && (s.breaker.tripped || !q.circuit.closed())
	verdict := p.failed(x, now)
	outage := verdict == sinkFails || verdict == campaignFails || q.circuit.isHeld()
	counts := x.usesAttempt(outage, probe, now) && !p.spared(&x, verdict, now)
	switch {
	case p.drain.stopped: // stays open; it is tried again by the daemon that reads it next
	case r.Class == delivery.Temporary:
		p.retry(j, r, counts, min(r.RetryAfter, s.maxRetryAfter), now)
	case outage:
		p.putBack(q, j, unreachedPause, now)
	case r.Class == delivery.Unreachable:
		p.retry(j, r, counts, 0, now)
	default:
		p.logRefused(q, s, j, r, now)
		p.waitAlone(j, max(p.opt.Retry.after(1+int(j.TimerHops)), p.opt.MaxOpenAge), now)
	}
}

// logRefused logs a refusal of credentials or settings that closes nothing: the first ones, and those among jobs that are taken.
func (p *Pacer) logRefused(q *queue, s *sinkState, j *delivery.Job, r delivery.Result, now instant) {
	if now.local < s.quiet.refused {
		return
	}
	s.quiet.refused = now.in(tellEvery)
	log := p.opt.Logger.With("sink", s.id, "campaign", q.id, "job", j.ID, "detail", r.Detail)
	if s.tookSince(max(0, now.in(-tellEvery))) {
		log.Warn("the sink refused pacer's credentials or settings for a job, though it takes others; it is tried again later, and not given up: " +
			"see what the answer says")
		return
	}
	log.Warn("the sink refused pacer's credentials or settings for a job, which is tried again later, and none is given up: correct the sink's " +
		"configuration, or the destination")
}

// usesAttempt tells whether a failure is the job's own, so that an attempt is used up. In an outage it is if the destination
// itself answered a probe, or nobody did to one that had no answer before, while others were taken: many bad jobs look like
// an outage when they are all that is left, and come to their end one by one. Otherwise it is, unless nothing says that the
// destination works. A job that was written and never answered is not believed in for ever: see unansweredFor.
func (x *sent) usesAttempt(outage, probe bool, now instant) bool {
	r, c := x.result, &x.queue.circuit
	long := c.unansweredLong(now.local)
	switch {
	case c.isHeld():
		return false
	case outage:
		return probe && r.Class == delivery.Temporary && (r.By == delivery.ByDestination || r.By == delivery.ByNobody && (x.job.Attempt > 0 || long))
	case r.Class == delivery.Unreachable:
		return x.sink.tookSince(x.since)
	}
	return r.By != delivery.ByNobody || x.suspect() || long
}

// suspect tells whether a job that failed temporarily may be to blame itself: it has failed before, or the sink takes others.
func (x *sent) suspect() bool {
	return x.job.Attempt > 0 || x.result.By == delivery.ByNobody && x.sink.tookSince(x.since)
}

// retry counts the attempt, if it is one, and lets the job wait for its back-off, and at least for as long as the
// destination asked.
func (p *Pacer) retry(j *delivery.Job, r delivery.Result, counts bool, asked time.Duration, now instant) {
	if counts {
		j.Attempt++
		if j.Attempt >= p.opt.Retry.MaxAttempts {
			p.dead(j, delivery.ReasonAttemptsExhausted, r.Detail)
			return
		}
	}
	p.waitAlone(j, max(p.opt.Retry.after(max(1, j.Attempt)), asked), now)
}

// waitAlone lets a job that was sent wait for its next attempt, and others of its campaign pass it.
func (p *Pacer) waitAlone(j *delivery.Job, d time.Duration, now instant) {
	if p.drain.stopped || drop(j) {
		return // stays open; it is tried again by the daemon that reads it next
	}
	if j.State == nil {
		j.Account.Tried(j)
	}
	j.Due = now.wall.Add(d)
	p.wait(j, d, delivery.ReasonRetry, now)
}

// putBack returns a job that was not delivered through no fault of its own to the head of its queue.
func (p *Pacer) putBack(q *queue, j *delivery.Job, pause time.Duration, now instant) {
	if p.drain.stopped || drop(j) {
		return // stays open; it is sent by the daemon that reads it next
	}
	if j.State != nil {
		j.Due = now.wall.Add(pause)
		p.replace(j, now)
		return
	}
	if pause > 0 {
		j.Due = now.wall.Add(pause)
		if c := q.campaign; c != nil && !stays(j, c) && j.Due.Sub(j.ReadAt) > p.opt.MaxOpenAge {
			p.relay(j, c, now) // in memory it would keep its offset open for as long as this goes on
		} else {
			p.wait(j, pause, delivery.ReasonRetry, now)
		}
		return
	}
	if q.campaign == nil || q.standing(now) != sending || j.Weight > maxUnits(q.campaign) {
		p.replace(j, now)
		return
	}
	q.pushFront(j)
	p.schedule(q)
	p.takes.want(q)
}

// failed counts a failure of the sink, and closes the gate or the circuit if that shows an outage.
func (p *Pacer) failed(x sent, now instant) verdict {
	q, s, r := x.queue, x.sink, x.result
	cause := delivery.GateFailing
	if r.Class == delivery.Misconfigured {
		cause = delivery.GateMisconfigured
	}
	f := failure{
		campaign: q.id, again: r.Class == delivery.Temporary && x.suspect(),
		sink:     r.Class != delivery.Temporary && r.Scope != delivery.ScopeCampaign,
		answered: r.Class == delivery.Temporary && r.By == delivery.ByDestination,
	}
	v := s.breaker.failed(&q.circuit, f, now.local)
	switch v {
	case sinkFails:
		if done, first := s.breaker.trip(cause, now.local); done {
			call := gateCall{Closure: delivery.Closure{Cause: s.breaker.cause, For: halfOpenEvery, Probe: true}}
			if first {
				p.logClosed(s, &call, r)
			}
			p.closeGate(s, call, now)
		}
		p.takes.askLater(q, s.breaker.openUntil+p.quantum.length) // another campaign tries next
	case campaignFails:
		if done, first := q.circuit.open(now.local); done {
			if first {
				p.logCampaignFails(q, s, r)
			}
			p.pauseQueue(q)
		}
	}
	return v
}

// logCampaignFails logs that failures have opened the campaign's circuit. Where no other campaign sends to the sink, it is not known
// whether it would take other jobs.
func (p *Pacer) logCampaignFails(q *queue, s *sinkState, r delivery.Result) {
	log := p.opt.Logger.With("campaign", q.id, "sink", s.id, "detail", r.Detail)
	if s.tookSince(q.circuit.since) {
		log.Warn("the sink fails this campaign's jobs and takes others; one a second is tried")
		return
	}
	log.Warn("the sink fails this campaign's jobs, and is not known to take others; one a second is tried")
}

// pauseQueue hands the slots of a queue back whose circuit was opened.
func (p *Pacer) pauseQueue(q *queue) {
	p.refundSlots(q)
	q.turnAt, q.ask.paced = q.circuit.openUntil, false
	p.takes.askLater(q, q.circuit.openUntil)
}

// logClosed logs that failures have closed the sink's gate. All daemons find wrong settings at once: the one that closes
// the gate first says so.
func (p *Pacer) logClosed(s *sinkState, call *gateCall, r delivery.Result) {
	if call.Cause == delivery.GateMisconfigured {
		call.tell = func(first bool) {
			level := slog.LevelInfo
			if first {
				level = slog.LevelError
			}
			p.opt.Logger.Log(context.Background(), level, "the sink refuses pacer's credentials or settings; its gate is closed and "+
				"probed once a second, and no job is given up: correct the sink's configuration, or the destination", "sink", s.id, "detail", r.Detail)
		}
		return
	}
	p.opt.Logger.Warn("the sink does not work; its gate is closed and probed once a second", "sink", s.id, "detail", r.Detail)
}

// worked records that the sink works, and opens a gate that failures had closed.
func (p *Pacer) worked(x *sent, now instant) {
	q, s := x.queue, x.sink
	if x.destination != nil {
		p.destinationWorked(x, now)
	}
	q.takenAt = now.local
	if e := p.campaigns.byID[q.id]; e != nil {
		e.account.Succeeded(now.wall)
		e.failing.Worked()
	}
	if q.circuit.worked(now.local) {
		p.takesAgain(q, s, now)
	}
	p.sinkWorked(s, now)
}

// takesAgain lets a campaign ask for slots whose circuit is closed again.
func (p *Pacer) takesAgain(q *queue, s *sinkState, now instant) {
	p.opt.Logger.Info("the sink takes this campaign's jobs again", "campaign", q.id, "sink", s.id)
	p.takes.askLater(q, now.local)
}

// sinkWorked records that the sink answers as it should, whatever it says of a job.
func (p *Pacer) sinkWorked(s *sinkState, now instant) {
	s.workedAt = now.local
	tell, recovered := s.breaker.worked()
	if tell {
		p.publishGate(s, gateCall{open: true})
	}
	if !recovered {
		return
	}
	p.opt.Logger.Info("the sink works again", "sink", s.id)
	p.askSoon(s, now)
}

// askSoon lets the campaigns of a sink ask for slots now.
func (p *Pacer) askSoon(s *sinkState, now instant) {
	for _, q := range p.queues.list {
		if q.sink == s {
			p.takes.askLater(q, now.local)
		}
	}
}
