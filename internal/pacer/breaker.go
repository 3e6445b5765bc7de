package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// probeEvery is when one job is sent after a breaker has opened, and each time that it fails: to a destination twice as late each
	// time, up to maxProbeEvery. After a requested wait, the first is sent after firstProbe, and each next one twice as late, up to that
	// wait.
	firstProbe, probeEvery, maxProbeEvery = 500 * time.Millisecond, time.Second, time.Minute
	// So many failures in a row open a breaker: answers that ask to wait or refuse credentials; calls without an answer; answers about
	// the job itself, such as 500. The last number is higher because bad jobs come in groups.
	namedFailures, silentFailures, answeredFailures = 3, 5, 50
	// Failures must last failuresOver: at a thousand calls a second, five mean little. silentFailures answered ones over answeredOver open
	// a breaker too, so that an outage does not use up the attempts of a slow campaign.
	failuresOver, answeredOver = 200 * time.Millisecond, time.Minute
	// heldRefusals in a row hold a campaign or a destination, whose template or address may be wrong. absentRefusals hold a destination whose
	// first answers all say that nothing is there. Daemons share this number, and each needs at least fewestRefusals.
	heldRefusals, absentRefusals, fewestRefusals = 50, 5, 2
	// unansweredFor is how long a campaign's jobs may get no answer, and none be delivered, before that may be their own fault.
	unansweredFor = 15 * time.Minute
	// maxThrottled is the part of throttled answers above which no job is to blame: more is sent than the scope takes.
	maxThrottled = 0.25
)

// breaker is the circuit breaker of a destination, of a campaign or of a sink in this daemon. It is closed until enough calls in a row have
// failed. When its time has passed it is half-open: one job is sent, and a delivery closes it. It is pure; times are local ones, in
// microseconds. The zero value is closed.
type breaker struct {
	failureRun
	refusals    failureRun // jobs that will never be taken
	openUntil   int64
	tripped     bool // open, or half-open when openUntil has passed
	trippedAt   int64
	cause       delivery.GateCause
	trips       int     // in a row
	succeededAt int64   // when a job was last delivered or rejected; 0: never
	movedAt     int64   // when it was last opened or closed by what happened here
	throttled   float64 // part of about the last hundred answers that throttled a job without an attempt
}

// failureRun are failures in a row, of different jobs, without a delivery in between.
type failureRun struct {
	failures int
	answered int // of them, by the destination itself
	hold     int // so many refusals hold the scope
	same     int // the last of them, for one cause
	of       delivery.GateCause
	job      string // id of the last
	campaign string // of the first
	several  bool   // they are of several campaigns
	since    int64  // when the first call began, or the delivery before it ended
	last     int64  // 0: none
}

type failure struct {
	job      *delivery.Job
	cause    delivery.GateCause
	answered bool  // the destination itself answered for the job
	begun    int64 // local time of the call
}

// open reports whether nothing may be sent now.
func (b *breaker) open(now int64) bool { return b.openUntil > now }

// isHeld reports whether refusals hold the scope: none of its jobs is given up.
func (b *breaker) isHeld() bool {
	r := &b.refusals
	return r.failures > 0 && r.failures >= r.hold || b.tripped && b.cause == delivery.GateRefused
}

// takesNothing reports whether that is worth telling: the scope does not work, or asks to wait and has taken no job for a minute.
func (b *breaker) takesNothing(now int64) bool {
	return b.tripped && (b.cause != delivery.GateThrottled || now-b.trippedAt >= time.Minute.Microseconds())
}

// troubled reports whether something is known that must not be forgotten.
func (b *breaker) troubled(now int64) bool {
	return b.tripped || b.openUntil > now || b.failures > 0 || b.refusals.failures > 0
}

// succeededSince reports whether a job was delivered or rejected after a local time, which is negative for times before this process.
func (b *breaker) succeededSince(local int64) bool { return b.succeededAt > max(0, local) }

// unansweredLong reports whether failures have gone on for so long that jobs without an answer may be to blame.
func (b *breaker) unansweredLong(now int64) bool {
	return b.last > 0 && now-b.since >= unansweredFor.Microseconds()
}

// fail adds a failure and reports whether the breaker must open. A half-open one opens at once. The same job counts once in a row. A job
// with an attempt does not count if the failure may be its own.
func (b *breaker) fail(f failure, now int64) (opens bool) {
	r := &b.failureRun
	own := f.cause == delivery.GateFailing && f.job.Attempt > 0 || r.failures > 0 && r.job != "" && r.job == f.job.ID
	if r.last == 0 {
		*r = failureRun{campaign: f.job.Campaign, since: min(now, max(f.begun, b.succeededAt))}
	}
	if r.last = max(now, 1); !own {
		if r.failures++; f.answered {
			r.answered++
		}
		if f.cause != r.of {
			r.same = 0
		}
		r.of, r.same = f.cause, r.same+1
		r.several = r.several || r.campaign != f.job.Campaign
		r.job = f.job.ID
	}
	return b.tripped || r.enough(now)
}

func (r *failureRun) enough(now int64) bool {
	over := time.Duration(now-r.since) * time.Microsecond
	switch {
	case r.of != delivery.GateFailing:
		return r.same >= namedFailures
	case r.answered == r.failures:
		return r.failures >= answeredFailures && over >= failuresOver || r.failures >= silentFailures && over >= answeredOver
	default:
		return r.failures >= silentFailures && over >= failuresOver
	}
}

// trip opens the breaker until the next probe, for most at the longest. After a requested wait of more than a second, probes begin
// sooner: perhaps only a few recipients are throttled. done is false if it is open already. first is true if it was closed, or opened for
// another cause.
func (b *breaker) trip(cause delivery.GateCause, most time.Duration, now int64) (done, first bool) {
	if b.openUntil > now {
		return false, false
	}
	first = !b.tripped || b.cause != cause
	if !b.tripped {
		b.tripped, b.trippedAt = true, now
	}
	after := probeEvery
	if cause == delivery.GateThrottled && most > probeEvery {
		after = firstProbe
	}
	b.cause, b.openUntil, b.movedAt = cause, now+min(after<<b.trips, most).Microseconds(), now
	b.trips = min(b.trips+1, 16)
	return true, first
}

// succeeded records a delivery, which closes the breaker. recovered reports whether it was open.
func (b *breaker) succeeded(now int64) (recovered bool) {
	recovered = b.tripped
	moved := b.movedAt
	if recovered {
		moved = now
	}
	*b = breaker{succeededAt: now, movedAt: moved, throttled: b.throttled * (1 - 1./128)}
	return recovered
}

// refused records a job that will never be taken. An answer closes the breaker, but so many refusals in a row hold it; first reports whether
// this refusal does. Of a scope that has taken a job, or refused one for which it takes more to hold it, the larger number counts.
func (b *breaker) refused(hold int, now int64) (first, recovered bool) {
	refusals, takenAt := b.refusals, b.succeededAt
	if refusals.failures == 0 {
		refusals.since = now
	}
	if refusals.failures, refusals.last = refusals.failures+1, now; takenAt != 0 {
		hold = heldRefusals
	}
	refusals.hold = max(refusals.hold, hold)
	if b.isHeld() {
		b.refusals = refusals
		return false, false
	}
	recovered = b.succeeded(now)
	b.refusals, b.succeededAt = refusals, takenAt
	return b.isHeld(), recovered
}

// forgive forgets refusals, and reports whether they held it.
func (b *breaker) forgive(now int64) (was bool) {
	if was = b.isHeld(); was {
		b.succeeded(now)
	}
	b.refusals = failureRun{}
	return was
}

// seeGate records what another daemon has found: the destination asks to wait, or refuses credentials.
func (b *breaker) seeGate(until int64, g delivery.Gate, now int64) {
	if !b.tripped {
		b.tripped, b.trippedAt, b.cause, b.trips = true, now, g.Cause, max(b.trips, 1)
	}
	if until > b.openUntil {
		b.openUntil, b.cause = until, g.Cause
	}
}

// seeOpened records that another daemon had a delivery at a time, or a person has opened the gate, and reports whether that is later than
// what is known here, and changes it.
func (b *breaker) seeOpened(at, now int64) bool {
	if b.movedAt > at || !b.tripped && b.openUntil <= now {
		return false
	}
	*b = breaker{succeededAt: max(b.succeededAt, at)}
	return true
}
