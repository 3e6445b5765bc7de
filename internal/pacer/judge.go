package pacer

import (
	"cmp"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// judge decides what happens with jobs that were sent, and opens and closes the breakers of their destinations, campaigns and sinks.
type judge struct{ placing }

// failed returns what happens with a job that was not taken for now. The scope that the failure blames may have taken another job since this one was last
// sent. Then the failure is contradicted: it is the job's own, closes nothing, and uses an attempt. So each job comes to its end while its
// sink works, and no job ends because its sink is down.
func (v *judge) failed(x *sent, now instant) placement {
	q, s, j, r := x.queue, x.sink, x.job, x.result
	v.noteFailure(x, now)
	counts := !x.held() && x.usesAttempt(now)
	asked := time.Duration(0)
	if r.Class == delivery.Throttled {
		asked = min(cmp.Or(max(0, r.RetryAfter), defaultRetry), s.maxRetryAfter)
	}
	if blamed, _ := x.breakers(); r.Class == delivery.Throttled && j.Attempt == 0 {
		blamed.throttled += (1 - blamed.throttled) / 128
	}
	v.blame(x, asked, now)
	if r.Class == delivery.Misconfigured && !s.breaker.tripped && now.local >= s.quietUntil {
		s.quietUntil = now.in(logEvery)
		v.opt.Logger.Warn("the sink refused pacer's credentials or settings for a job, which is tried again later: correct the sink's configuration, or "+
			"the destination", "sink", s.id, "campaign", q.id, "job", j.ID, "detail", r.Detail)
	}
	if counts {
		if j.Attempt++; j.Attempt >= v.opt.Retry.MaxAttempts {
			return dead(delivery.ReasonAttemptsExhausted, r.Detail)
		}
	}
	return v.again(j, v.opt.waitOf(x, asked), now)
}

// waitOf is how long the job waits for its next attempt: its back-off, or what was asked for if that is longer. The wait asked for is
// varied, so that jobs do not come back together. A throttled job without an attempt has no back-off: it is the load that is throttled,
// not the job.
func (o *Options) waitOf(x *sent, asked time.Duration) time.Duration {
	j, r := x.job, x.result
	blamed, _ := x.breakers()
	switch {
	case r.Class == delivery.Throttled && j.Attempt > 0:
		return max(o.Retry.vary(asked), o.Retry.after(j.Attempt))
	case r.Class == delivery.Throttled:
		return o.Retry.vary(asked)
	case r.Class == delivery.Temporary:
		return max(o.Retry.after(max(1, j.Attempt)), min(r.RetryAfter, x.sink.maxRetryAfter))
	case blamed.tripped:
		return unreachedPause
	case r.Class == delivery.Misconfigured:
		return max(o.Retry.after(1+int(j.TimerHops)), o.MaxOpenAge)
	}
	return o.Retry.after(1 + int(j.TimerHops))
}

// outdated reports whether the job failed at what its destination was before it was changed: that says nothing of what it is now.
func (x *sent) outdated() bool {
	r := x.result
	if x.destination == nil || x.begun >= x.destination.renewedAt || !r.Class.Fails() {
		return false
	}
	return r.Class == delivery.Temporary || r.Class == delivery.Permanent && r.Reason == "" || r.Scope == delivery.ScopeDestination
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
	narrow = cmp.Or(x.breakerOf(delivery.ScopeDestination), &x.queue.circuit)
	switch in := x.scope(); {
	case in == delivery.ScopeDestination:
		return narrow, narrow
	case in == delivery.ScopeCampaign && x.result.Class != delivery.Temporary:
		return &x.queue.circuit, narrow
	}
	return &x.sink.breaker, narrow // others of the sink contradict a failure of one recipient
}

// causes are those of failures of a class that close a scope.
var causes = map[delivery.ResultClass]delivery.GateCause{
	delivery.Throttled: delivery.GateThrottled, delivery.Misconfigured: delivery.GateMisconfigured,
	delivery.Temporary: delivery.GateFailing, delivery.Unreachable: delivery.GateFailing,
}

// blame counts a failure against the scopes that it blames, and opens the breakers of those that do not work.
func (v *judge) blame(x *sent, asked time.Duration, now instant) {
	q, s, r, in := x.queue, x.sink, x.result, x.scope()
	f := failure{job: x.job, cause: causes[r.Class], begun: x.begun}
	f.answered = x.destination == nil && r.Class == delivery.Temporary && r.By != delivery.ByNobody // bad jobs of one destination are few
	fails := func(b *breaker) bool { return !b.succeededSince(x.since) && b.fail(f, now.local) }
	switch {
	case in == delivery.ScopeRecipient:
	case in != delivery.ScopeCampaign:
		if in == delivery.ScopeDestination && r.Gone || fails(x.breakerOf(in)) {
			v.open(x, in, f.cause, asked, now)
		}
	default:
		counts := r.Class == delivery.Temporary && (!q.circuit.tripped || s.breaker.tripped) // a campaign that is tried once a second says nothing about its sink
		sinkFails := counts && fails(&s.breaker)
		campaignFails := fails(&q.circuit)
		sinkFails = (sinkFails || counts && campaignFails) && (s.breaker.several || s.breaker.tripped)
		if q.circuit.succeededSince(x.since) {
			return
		}
		if sinkFails {
			v.open(x, delivery.ScopeSink, f.cause, asked, now)
		} else if campaignFails {
			if !q.circuit.tripped { // they are the campaign's, unless others fail as well
				s.breaker.failureRun = failureRun{campaign: q.id, since: now.local, last: max(1, now.local)}
			}
			v.open(x, in, f.cause, asked, now)
		}
	}
}

// loggedFailures is how many failures in a row the log reports: a single job is given up before that. They count from loggedAfter the last
// success on: a sink that takes some jobs of each second, and not the others, is not worth a line.
const loggedFailures, loggedAfter = 10, 10 * time.Second

// noteFailure notes that a job of the campaign was not taken. Few such jobs open no breaker, and wait in timers, where nothing counts them.
func (v *judge) noteFailure(x *sent, now instant) {
	e := v.campaigns.byID[x.queue.id]
	if e == nil {
		return
	}
	e.account.Failed(now.wall)
	success, _ := e.account.Last()
	if now.wall.Sub(success) < loggedAfter {
		return
	}
	if e.failing.Failed(); e.failing.Failures() == loggedFailures && !x.queue.circuit.tripped && !x.sink.breaker.tripped {
		last := "never"
		if !success.IsZero() {
			last = success.UTC().Format(time.RFC3339Nano)
		}
		v.opt.Logger.Warn("the jobs of a campaign fail, and none was delivered since; they are tried again: look at the destination, and at what "+
			"they have in common", "campaign", x.queue.id, "sink", x.sink.id, "last_success", last, "detail", x.result.Detail)
	}
}
