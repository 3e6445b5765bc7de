package delivery

import "time"

// ResultClass is what a sink's answer means for a job.
type ResultClass uint8

// The classes of results.
const (
	// Delivered: the destination took the job.
	Delivered ResultClass = iota
	// Rejected: a normal refusal of this one job (a token that is gone, a recipient who has unsubscribed). The job is
	// settled, and is no dead letter.
	Rejected
	// Permanent: the destination will never take this job (400, 413, 422). Dead letter "refused".
	Permanent
	// Temporary: the job may be taken later (5xx, 408, 425), or was written and got no answer. The job waits, for
	// RetryAfter where the destination said it, and an attempt is used up.
	Temporary
	// Throttled: the destination asked to wait (429, or 503 with Retry-After). This, Unreachable and Misconfigured use up an attempt only if
	// the scope that they blame has taken another job since this one was last sent.
	Throttled
	// Unreachable: nothing of the job reached the destination (no address, connection refused, no TLS).
	Unreachable
	// Misconfigured: the answer is about credentials or settings and not about the job (401, 403, 407, 3xx, a
	// certificate that is not valid).
	Misconfigured
	// Pending: a step of a longer request is done, and the request goes on from State after RetryAfter: without a slot, and
	// without another unit of rate or quota. Uses up no attempt; the attempts of the step before are forgotten.
	Pending
	// Interrupted: the call was cancelled by pacer itself (at the end of the process). The job stays open and is
	// read again by the daemon that owns the partition next: a possible duplicate.
	Interrupted
)

// The classes of jobs that did not reach their sink.
const (
	// Withheld: pacer did not send the job, for a reason unrelated to the sink. It goes back to its queue for
	// RetryAfter, and uses up no attempt.
	Withheld ResultClass = iota + Interrupted + 1
	// Duplicate: not sent, since a job with its id had been delivered before.
	Duplicate
	// Cancelled: not sent, since the job was cancelled.
	Cancelled
)

func (c ResultClass) String() string {
	return [...]string{
		"delivered", "rejected", "permanent", "temporary", "throttled", "unreachable", "misconfigured", "pending", "interrupted",
		"withheld", "duplicate", "cancelled",
	}[c]
}

// ResultClasses lists every class that a sink may answer with, for zero-initialising metrics.
var ResultClasses = []ResultClass{
	Delivered, Rejected, Permanent, Temporary, Throttled, Unreachable, Misconfigured, Pending, Interrupted,
}

// Fails reports whether a sink that answers so has not taken the job, and would have been expected to.
func (c ResultClass) Fails() bool { return c >= Permanent && c <= Misconfigured }

// Failure is the last one of a sink. The zero value is none.
type Failure struct {
	At     time.Time
	Detail string // as that of its Result
}

// Scope says what an answer of the classes Throttled, Unreachable and Misconfigured is about.
type Scope uint8

// The scopes.
const (
	ScopeSink        Scope = iota // everything that is sent to the sink
	ScopeDestination              // one destination of the sink, such as a host
	ScopeCampaign                 // the jobs of the campaign
	ScopeRecipient                // the recipient of the job, so that the job waits alone
)

// Answerer is who gave a temporary answer. In an outage, it says whether the answer is about the job.
type Answerer uint8

// The answerers.
const (
	ByUnknown     Answerer = iota
	ByDestination          // itself: it has seen the job
	ByNobody               // nothing came in time, or a gateway before the destination answered instead
)

// Result is a sink's answer for one job.
type Result struct {
	Class ResultClass
	Scope Scope
	// RetryAfter is how long to wait: Throttled and Temporary, 0 when the destination did not say; Withheld and Pending, 0
	// for not at all.
	RetryAfter time.Duration
	By         Answerer // who said so: Temporary
	Status     int      // HTTP status where there is one
	Detail     string   // one line, bounded, without secrets
	// Reason is why a Permanent job is a dead letter; "" for ReasonRefused. Only refusals are counted against its campaign. Of a Withheld job, it
	// is what it waits for; "" for ReasonRetry.
	Reason Reason
	// State is what a Pending job goes on from.
	State *State
	// Repeatable says of a Pending job that the call may be made again after a crash: State need not be durable before the
	// next call. Otherwise it is.
	Repeatable bool
	// Gone says of a Misconfigured answer that the destination wants no more, ever.
	Gone bool
	// Keep is set for a Rejected job that is to be kept as a dead letter.
	Keep     bool
	Provider *Provider     // nil: the answer named nothing of it
	Took     time.Duration // of the call of the sink
	TraceID  string        // of the attempt, if it is traced; "" otherwise
}

// Provider is what an answer says in the destination's own words. It does not change once it is part of a Result.
type Provider struct {
	Code      string    // of an error, such as UNREGISTERED; one line of at most MaxProviderText bytes
	MessageID string    // by which the destination knows the message; the same
	GoneSince time.Time // since when the recipient's token has not been valid; zero: not said
	Answer    string    // the beginning of an answer that did not take the job; one line of at most MaxAnswer bytes, without secrets
}

// MaxProviderText bounds the code and the id of a Provider, in bytes.
const MaxProviderText = 256

// MaxAnswer bounds the answer of a Provider, in bytes.
const MaxAnswer = 512
