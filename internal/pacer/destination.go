package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// mostShut is how long a destination is left alone at most before one job tries it again: 1 s at first, and twice as long
	// after each that fails.
	mostShut = time.Minute
	// refusalsCounted is how many refusals in a row by one destination count as the campaign's: heldRefusals hold a campaign only
	// if several destinations refuse its jobs.
	refusalsCounted = heldRefusals / 5
	// firstCalls of most calls, but outageFailures at most, may be in flight to a destination that has not answered: as many as
	// show whether it works.
	firstCalls = 16
)

// destinationBreaker is the circuit breaker of one destination of a sink. It is closed until failures in a row, a row of refusals or a wait
// that the destination asks for open it; when its time has passed it is half-open, and one job is tried. What is tried is all of one
// destination, so unlike with a sink or a campaign, failures need not be told apart by whose they are. It is pure; all times are local
// ones, in microseconds. The zero value is closed.
type destinationBreaker struct {
	failureRun
	refusals  failureRun // jobs that the destination will never take
	openUntil int64      // nothing is sent before
	waitUntil int64      // for how long of this the destination asked; no success ends it sooner
	tripped   bool       // half-open when openUntil has passed; a success closes it
	trippedAt int64      // since when it is
	cause     delivery.GateCause
	trips     int   // in a row
	workedAt  int64 // when the destination last took a job, or rejected it; 0: not known
	movedAt   int64 // when it was last opened by what happened here
}

// open tells whether nothing is sent now.
func (b *destinationBreaker) open(now int64) bool { return b.openUntil > now }

// halfOpen tells whether one job is to be tried.
func (b *destinationBreaker) halfOpen(now int64) bool { return b.tripped && b.openUntil <= now }

// isHeld tells whether the destination is held for refusals: none of its jobs is given up.
func (b *destinationBreaker) isHeld() bool {
	return b.refusals.failures >= heldRefusals || b.tripped && b.cause == delivery.GateRefused
}

// troubled tells whether anything is known of the destination that must not be forgotten.
func (b *destinationBreaker) troubled(now int64) bool {
	return b.tripped || b.openUntil > now || b.failures > 0 || b.refusals.failures > 0
}

// failed counts a failure of a call that was begun at a time, and tells whether it shows an outage. A call that is given up after ten
// seconds says that the destination has not worked for that long.
func (b *destinationBreaker) failed(f failure, begun, now int64) (outage bool) {
	if f.sink || !f.again {
		if b.failures == 0 {
			b.addFailure(f, now)
			b.since = min(now, max(begun, b.workedAt))
		} else {
			b.addFailure(f, now)
		}
	}
	return b.tripped || b.outage(now)
}

// trip opens it because of failures or refusals. done is false while it is open already; first is true if failures had not opened it
// before, or for another cause.
func (b *destinationBreaker) trip(cause delivery.GateCause, now int64) (done, first bool) {
	if b.openUntil > now {
		return false, false
	}
	if b.tripped {
		cause = max(cause, b.cause)
	}
	first = !b.tripped || b.cause != cause
	b.isTripped(cause, now)
	b.trips = min(b.trips+1, 16)
	b.openUntil = now + min(halfOpenEvery<<(b.trips-1), mostShut).Microseconds()
	b.movedAt = now
	return true, first
}

// wait opens it for as long as the destination asks. probe says that it asks for longer: then one job is tried when this has passed.
func (b *destinationBreaker) wait(until int64, probe bool, now int64) {
	b.waitUntil = max(b.waitUntil, until)
	b.openUntil = max(b.openUntil, until)
	if probe && !b.tripped {
		b.isTripped(delivery.GateThrottled, now)
	}
	b.movedAt = now
}

// worked records a success, which closes it except for a wait that was asked for. It tells whether it was tripped.
func (b *destinationBreaker) worked(now int64) (recovered bool) {
	recovered = b.tripped
	*b = destinationBreaker{workedAt: now, openUntil: b.openUntil, waitUntil: b.waitUntil, movedAt: b.movedAt}
	if b.openUntil > b.waitUntil {
		b.openUntil = b.waitUntil
	}
	return recovered
}

// refused records that the destination will never take a job: it answers, and so does not fail. Many in a row hold it; first says that
// this one does.
func (b *destinationBreaker) refused(now int64) (first, recovered bool) {
	refusals, held, worked := b.refusals, b.isHeld(), b.workedAt
	refusals.add(now)
	if held {
		b.refusals = refusals
		return false, false
	}
	recovered = b.worked(now)
	b.refusals, b.workedAt = refusals, worked
	return b.isHeld(), recovered
}

func (b *destinationBreaker) isTripped(cause delivery.GateCause, now int64) {
	if !b.tripped {
		b.trippedAt = now
	}
	b.tripped, b.cause = true, cause
}

// openedByFleet records that another daemon has found the destination not to work, or to ask for a wait.
func (b *destinationBreaker) openedByFleet(until int64, g delivery.Gate, now int64) {
	b.openUntil = max(b.openUntil, until)
	if g.Cause == delivery.GateThrottled {
		b.waitUntil = max(b.waitUntil, until)
	}
	if g.Probe && !b.tripped {
		b.isTripped(g.Cause, now)
		b.trips = max(b.trips, 1)
	}
}

// closedByFleet records that another daemon, or a person, has closed it at a time, and tells whether that is later than what is known
// here, and changes it.
func (b *destinationBreaker) closedByFleet(at, now int64) bool {
	if b.movedAt > at || !b.tripped && b.openUntil <= now {
		return false
	}
	*b = destinationBreaker{workedAt: max(b.workedAt, at)}
	return true
}

// flow is how many calls may be in flight to a destination. One that does not answer must not take the calls of the others, so it gets
// a few calls at first, and up to twice as many as are in use with each round of answers. It is pure; the zero value is ready.
type flow struct {
	calls  calls
	window int // 0: as at first
}

// firstWindow is how many calls of most, which all destinations share, may be in flight to one that has not answered.
func firstWindow(most int) int { return min(max(1, most/firstCalls), outageFailures) }

// room is how many further calls may begin. most is what all destinations share, limit what this one may have; 0 for no such limit.
func (f *flow) free(most, limit int) int {
	if limit == 0 {
		limit = most
	}
	return min(max(f.window, firstWindow(most)), limit) - f.calls.inFlight
}

// ended records the end of a call. answered says that the destination took the job, or at least answered for it.
func (f *flow) ended(answered bool, most int) {
	switch window := max(f.window, firstWindow(most)); {
	case !answered:
		f.window = 0
	case 2*(f.calls.inFlight+1) >= window:
		f.window = min(window+2, most)
	}
}
