package delivery

import "time"

// ResultClass is what a sink's answer means for a job.
type ResultClass uint8

// The classes of results.
const (
	// Delivered: the destination accepted the job.
	Delivered ResultClass = iota
	// Throttled: the destination asked to wait (429, or 503 with Retry-After). Uses up no attempt.
	Throttled
	// Unreachable: no answer at all (refused, reset, timed out before an answer). Uses up no attempt once the
	// gate is closed by it.
	Unreachable
	// Temporary: an answer that may change (5xx, 408, 425). Retried with back-off.
	Temporary
	// Permanent: an answer that will not change (other 4xx). Dead letter "refused".
	Permanent
	// Interrupted: the call was cancelled by pacer itself (a drain that ran out of time). The job stays open and is
	// read again by whoever owns the partition next: a possible duplicate.
	Interrupted
)

// The classes of jobs that did not get as far as their sink.
const (
	// Withheld: pacer did not send the job for reasons that are not the sink's. It goes back to its queue for
	// RetryAfter, and uses up no attempt.
	Withheld ResultClass = iota + Interrupted + 1
	// Duplicate: not sent, since a job with its id had been delivered before.
	Duplicate
)

func (c ResultClass) String() string {
	return [...]string{"delivered", "throttled", "unreachable", "temporary", "permanent", "interrupted", "withheld", "duplicate"}[c]
}

// ResultClasses lists every class that a sink may answer with, for zero-initialising metrics.
var ResultClasses = []ResultClass{Delivered, Throttled, Unreachable, Temporary, Permanent, Interrupted}

// Result is a sink's answer for one job.
type Result struct {
	Class      ResultClass
	RetryAfter time.Duration // how long to wait: Throttled, 0 when the destination did not say; Withheld, 0 for not at all
	Status     int           // HTTP status where there is one
	Detail     string        // one line, bounded, without secrets
}
