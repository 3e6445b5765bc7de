package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// halfOpenEvery is how often a sink that failures have stopped is tried by one job.
	halfOpenEvery = time.Second
	// outageFailures in a row over at least outageAfter are an outage: at a thousand calls a second, five failures alone
	// mean little.
	outageFailures = 5
	outageAfter    = 200 * time.Millisecond
	// elsewhereFor is how long other daemons' successes with a campaign speak for the sink; they are told of every one to
	// three seconds.
	elsewhereFor = 5 * time.Second
	// heldRefusals in a row hold a campaign: it may have the wrong template, or go to the wrong place.
	heldRefusals = 50
	// maxUndecided jobs may fail in a row, each with an answer of the destination's own, before that is an outage: as many bad
	// jobs may come together.
	maxUndecided = 250
	// unansweredFor is how long a campaign's jobs may get no answer, and none be taken, before that may be their own fault.
	unansweredFor = 15 * time.Minute
)

// failure is a call that failed.
type failure struct {
	campaign string
	// again says that the job has failed before, or otherwise may be to blame, so that this says nothing of the sink.
	again bool
	// sink says that it is not the job's fault: the sink could not be reached, or refused pacer's credentials.
	sink bool
	// answered says that the destination itself answered for the job.
	answered bool
}

// failureRun is a row of failures without a success in between.
type failureRun struct {
	failures int
	answered int   // of them, by the destination itself
	since    int64 // local time of the first of them, microseconds
	last     int64 // and of the last
}

func (s *failureRun) add(now int64) {
	if s.failures == 0 {
		s.since, s.answered = now, 0
	}
	s.failures++
	s.last = now
}

// addFailure adds a failed call.
func (s *failureRun) addFailure(f failure, now int64) {
	s.add(now)
	if f.answered {
		s.answered++
	}
}

// undecided tells whether the streak may still be one of bad jobs: the destination has answered for each of them.
func (s *failureRun) undecided(f failure) bool {
	return f.answered && s.allAnswered() && s.failures <= maxUndecided
}

// allAnswered tells whether there are failures, and the destination answered for each of them.
func (s *failureRun) allAnswered() bool { return s.failures > 0 && s.answered == s.failures }

// unansweredLong tells whether failures have gone on for so long that jobs without an answer may be to blame.
func (s *failureRun) unansweredLong(now int64) bool {
	return s.failures > 0 && now-s.since >= unansweredFor.Microseconds()
}

// outage tells whether there are enough failures, over a long enough time, for an outage.
func (s *failureRun) outage(now int64) bool {
	return s.failures >= outageFailures && now-s.since >= outageAfter.Microseconds()
}

// campaignBreaker is the circuit breaker of one campaign, whose jobs a sink may fail while it takes those of others. It is closed
// until failures in a row open it; when its time has passed it is half-open, and one job is tried. It is pure, as breaker
// is: all times are local ones, in microseconds. The zero value is closed.
type campaignBreaker struct {
	failureRun
	openUntil int64 // 0: closed; passed: half-open
	waitUntil int64 // for how long of this the destination asked; nothing ends it sooner
	elsewhere int64 // until then, the sink is known to take jobs of the campaign from other daemons

	refusals failureRun // jobs that the sink will never take
}

func (c *campaignBreaker) closed() bool { return c.openUntil == 0 }

// open lets no job pass for a while. done is false when it is open already, and first is true when it was closed.
func (c *campaignBreaker) open(now int64) (done, first bool) {
	if c.openUntil > now {
		return false, false
	}
	first = c.closed()
	c.openUntil = now + halfOpenEvery.Microseconds()
	return true, first
}

// wait lets no job pass until then, since the destination asked for it.
func (c *campaignBreaker) wait(until int64) {
	c.waitUntil = max(c.waitUntil, until)
	c.openUntil = max(c.openUntil, until)
}

// worked records a success. It closes the circuit, except for a wait that the destination asked for, and tells whether
// failures or refusals had opened it.
func (c *campaignBreaker) worked(now int64) (closes bool) {
	closes = c.openUntil > c.waitUntil
	*c = campaignBreaker{elsewhere: c.elsewhere, waitUntil: c.waitUntil}
	if c.waitUntil > now {
		c.openUntil = c.waitUntil
	}
	return closes
}

// refused records that the sink will never take a job. It ends a streak of failures as a success does, but not one of
// refusals. Many of these in a row hold the campaign; the first of them does so.
func (c *campaignBreaker) refused(now int64) (first, closes bool) {
	refusals := c.refusals
	refusals.add(now)
	if c.isHeld() {
		c.refusals = refusals
		return false, false
	}
	closes = c.worked(now)
	c.refusals = refusals
	return c.isHeld(), closes
}

// isHeld tells whether the campaign is held for refusals: none of its jobs is given up.
func (c *campaignBreaker) isHeld() bool { return c.refusals.failures >= heldRefusals }

// forgive forgets refusals, and tells whether the campaign was held for them.
func (c *campaignBreaker) forgive(now int64) (was bool) {
	if was = c.isHeld(); was {
		c.worked(now)
	}
	c.refusals = failureRun{}
	return was
}

// fleetDelivered records that another daemon had a success at a time. If that is after the first failure or refusal here,
// they are the jobs' own, and so are failures of the next seconds. It tells whether the circuit is closed by it.
func (c *campaignBreaker) fleetDelivered(at, now int64) (closes bool) {
	if c.refusals.failures > 0 && at >= c.refusals.since {
		closes = c.forgive(now)
	}
	if c.isHeld() || c.failures == 0 || at < c.since {
		return closes
	}
	known, refusals := c.elsewhere > now, c.refusals
	closes = c.worked(now) || closes
	c.refusals = refusals
	if closes || known {
		c.elsewhere = now + elsewhereFor.Microseconds()
	}
	return closes
}

// fleetRefused records that another daemon holds the campaign for refusals. If jobs are refused here as well, it is
// held; true if that is new.
func (c *campaignBreaker) fleetRefused() (holds bool) {
	if c.refusals.failures == 0 || c.isHeld() {
		return false
	}
	c.refusals.failures = heldRefusals
	return true
}

// doubtful tells whether what other daemons know of the campaign matters here.
func (c *campaignBreaker) doubtful(now int64) bool {
	return c.failures > 0 || c.refusals.failures > 0 || c.elsewhere > now
}

// breaker is the circuit breaker of a sink in this daemon. It is open, so that no campaign sends to the sink, while the
// destination has asked to wait, or for a while at a time after failures that are not those of one campaign alone; in
// between it is half-open, and the next job that succeeds closes it. The zero value is closed.
type breaker struct {
	failureRun        // of the sink, except for those that opened the circuit of a campaign
	campaign   string // of the first of them
	several    bool   // they are not of that campaign alone, or not the jobs' fault
	openUntil  int64  // local time until which nothing is sent
	waitUntil  int64  // local time until which the destination asked to wait; at most openUntil
	tripped    bool   // failures opened it; a success closes it
	cause      delivery.GateCause
	elsewhere  bool  // the gate is closed, though not by this daemon
	others     int64 // until then, the sink is known to take jobs from other daemons
}

// verdict is what a failure means.
type verdict uint8

const (
	tolerated     verdict = iota // it may be the job's own fault
	undecided                    // an outage, or many bad jobs that come together: nothing is closed yet
	campaignFails                // the sink fails this campaign's jobs, and no others as far as is known
	sinkFails                    // the sink does not work
)

// failed counts a failure of the sink with a job of the campaign, whose circuit c is. A sink that cannot be reached, or
// fails the jobs of several campaigns and succeeds with none, does not work. If only the jobs of one campaign fail, the
// cause may be their content: only that campaign's circuit is opened. So it is if other daemons' jobs are taken. While the
// destination itself has answered for each of them, they are undecided until they are many. A job that has failed before adds
// nothing: those that always fail would otherwise be taken for an outage when they are all that is left.
func (b *breaker) failed(c *campaignBreaker, f failure, now int64) verdict {
	if b.failures == 0 {
		b.campaign, b.several = f.campaign, false
	}
	known := c.elsewhere > now && !f.sink
	if f.sink || !f.again {
		c.addFailure(f, now)
		if !known {
			b.several = b.several || f.sink || b.campaign != f.campaign
			b.addFailure(f, now)
		}
	}
	switch {
	case b.others <= now && (b.tripped || b.several && b.outage(now)):
		if !b.tripped && b.undecided(f) {
			return undecided
		}
		return sinkFails
	case known:
		return tolerated
	case c.outage(now): // also while the circuit is not closed
		if c.closed() && c.undecided(f) {
			return undecided
		}
		b.failures = 0
		return campaignFails
	}
	return tolerated
}

// trip opens the breaker because of failures. done is false while it is open already, and first is true when
// failures had not opened it before, or it is now known that the settings are wrong.
func (b *breaker) trip(cause delivery.GateCause, now int64) (done, first bool) {
	if b.openUntil > now {
		return false, false
	}
	if b.tripped {
		cause = max(cause, b.cause)
	}
	first = !b.tripped || b.cause != cause
	b.tripped, b.cause = true, cause
	return true, first
}

// open lets nothing pass until then; asked says that the destination asked for it, in which case a success does
// not close the breaker.
func (b *breaker) open(until int64, asked bool) {
	b.openUntil = max(b.openUntil, until)
	if asked {
		b.waitUntil = max(b.waitUntil, until)
	}
}

// fleetDelivered records that another daemon had a success at a time. If that is after the first failure here, the sink
// works, and what fails here in the next seconds is of single campaigns. It tells whether that opens a gate which failures
// here had closed.
func (b *breaker) fleetDelivered(at, now int64) (recovered bool) {
	failing := b.tripped || b.failures > 0
	if b.others > now {
		failing = now-at < elsewhereFor.Microseconds() // failures may have opened circuits meanwhile, and are not counted here
	}
	if !failing || b.failures > 0 && at < b.since {
		return false
	}
	recovered = b.tripped
	b.failures, b.tripped, b.others = 0, false, now+elsewhereFor.Microseconds()
	if recovered {
		b.openUntil = b.waitUntil
	}
	return recovered
}

// worked records a success. tell is true when other daemons may treat the sink as failing, and recovered when this
// one did.
func (b *breaker) worked() (tell, recovered bool) {
	tell, recovered = b.tripped || b.elsewhere, b.tripped
	b.failures, b.elsewhere = 0, false
	if recovered {
		b.tripped, b.openUntil = false, b.waitUntil
	}
	return tell, recovered
}
