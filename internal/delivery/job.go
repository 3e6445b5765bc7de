package delivery

import (
	"context"
	"time"
)

// MaxWeight is the largest weight a job may carry unless the configuration says otherwise.
const MaxWeight = 1000

// Priority orders the jobs of one campaign.
type Priority uint8

// The two priorities.
const (
	PriorityNormal Priority = iota
	PriorityHigh
)

// Origin names the record in which a job first reached pacer; it survives every re-enqueue.
type Origin struct {
	Topic     string
	Partition int
	Offset    int64
}

// Header is one Kafka record header.
type Header struct {
	Key   string
	Value []byte
}

// Place says what kind of topic a job was read from.
type Place uint8

// The places a job can be read from.
const (
	FromIngress Place = iota
	FromLane
	FromTimer
)

// Job is one logical request to deliver. It is made by the consumer and then owned by one component at a
// time: consumer, pacer queue, sink call, requeue outbox. Nobody touches a job after having handed it on.
type Job struct {
	ID          string
	Campaign    string
	Weight      int64 // units of rate and quota, at least 1
	Priority    Priority
	NotBefore   time.Time // zero: at once
	ExpiresAt   time.Time // zero: never
	ContentType string
	TraceParent string
	Payload     []byte

	Key     []byte   // the record's key, kept on re-enqueue
	Headers []Header // the record's headers that are not pacer's own, kept on re-enqueue

	Attempt    int           // answers so far that counted as an attempt, the last one included
	Hops       int           // re-enqueues into a lane
	TimerHops  int           // re-enqueues into a timer
	Origin     Origin        // the first record
	EnqueuedAt time.Time     // when pacer wrote the record this job was read from; zero for ingress
	FirstRead  time.Time     // when pacer first read the job (HeaderFirstRead, or now for ingress); counts for job_ttl
	TTL        time.Duration // set by pacer from the campaign: to be sent within it, counted from FirstRead; 0: for ever
	Due        time.Time     // set by pacer for a retry: not to be sent before; zero: at once
	SendBy     time.Time     // set by pacer at dispatch: not to be sent after, or its slot is passed; zero: no such time
	Reason     string        // why pacer wrote the record this job was read from; of a dead letter, why it is one
	Call       *Call         // the last call of a sink; nil where Report is not set, or none was made

	// Defect is set when the record cannot be delivered at all (a dead-letter reason such as ReasonUndecodable);
	// DefectDetail is one line for the person who reads the dead letter.
	Defect       Reason
	DefectDetail string

	// Duplicate is set before the job is offered to the pacer when one with its id is known to have been delivered.
	Duplicate bool

	// Observe, if set, is told the outcome when the job is settled; it must be quick and safe for concurrent use.
	Observe func(*Job, Outcome)
	// Report, if set, is told of a final outcome before the job is settled, and owns the job from then on: it must see to
	// it that Finish is called, once what it does with the outcome is durable. Quick and safe for concurrent use, too.
	Report func(*Job, Outcome)

	From   Place
	Source Source // where the open offset is kept
	Offset int64  // in Source
	Size   int64  // bytes charged to the process's buffer budget
	ReadAt time.Time
}

// ReadyAt is the first instant at which the job may be sent: the later of NotBefore and Due, zero if neither
// is set.
func (j *Job) ReadyAt() time.Time {
	if j.Due.After(j.NotBefore) {
		return j.Due
	}
	return j.NotBefore
}

// Expired tells whether the job may no longer be sent at now.
func (j *Job) Expired(now time.Time) bool {
	return !j.ExpiresAt.IsZero() && !now.Before(j.ExpiresAt) ||
		j.TTL > 0 && !j.FirstRead.IsZero() && now.Sub(j.FirstRead) >= j.TTL
}

// Source is the partition a job was read from, as the rest of pacer sees it. Its methods are safe for use by
// several goroutines at once.
type Source interface {
	// Name identifies the source within the process, e.g. "pacer.jobs/3".
	Name() string
	// Settle makes the fate of the job at offset durable: the caller promises that the job was delivered,
	// acknowledged by the broker elsewhere, or is to be dropped for good. Never blocks. Settling an offset twice,
	// or one of a source that is gone, does nothing.
	Settle(offset int64, outcome Outcome)
	// Flush commits what is settled and returns once the broker acknowledged it (or the source is gone, which is no
	// error).
	Flush(ctx context.Context) error
	// Room tells a source that the campaign, whose jobs were refused before, has room in its queue for about units more.
	// Never blocks. Timers, of which nothing is refused, ignore it.
	Room(campaign string, units int64)
	// Release gives the job at offset back unread, and its bytes with it: a lane notes its campaign as left behind
	// from the smallest released offset on and offers these jobs again after Room. Never blocks. Only for jobs
	// read from a lane; other sources ignore it.
	Release(campaign string, offset int64)
}

// Call is what is known of one call of a sink.
type Call struct {
	At     time.Time
	Took   time.Duration
	Status int // HTTP status where there is one
}

// Settle settles the job at its source, or lets Report do so when the time has come.
func (j *Job) Settle(outcome Outcome) {
	if j.Report != nil && outcome.Final() {
		j.Report(j, outcome)
		return
	}
	j.Finish(outcome)
}

// Finish settles the job at its source.
func (j *Job) Finish(outcome Outcome) {
	if j.Observe != nil {
		j.Observe(j, outcome)
	}
	j.Source.Settle(j.Offset, outcome)
}

// Outcome is the durable fate of a job.
type Outcome uint8

// The outcomes, as they are spelled in pacer_jobs_settled_total.
const (
	OutcomeDelivered Outcome = iota
	OutcomeRequeued          // moved into a lane
	OutcomeRetried           // moved into a timer
	OutcomeDead
	OutcomeExpired
	OutcomeCancelled
	OutcomeRepeated  // a record read before in this lane: its twin has the job's fate
	OutcomeDuplicate // not sent: a job with its id had been delivered before
)

// Outcomes lists every outcome, for zero-initialising metrics.
var Outcomes = []Outcome{
	OutcomeDelivered, OutcomeRequeued, OutcomeRetried, OutcomeDead, OutcomeExpired, OutcomeCancelled, OutcomeRepeated,
	OutcomeDuplicate,
}

// Final tells whether the job will not be seen again: it was neither moved on nor a repetition of a record.
func (o Outcome) Final() bool {
	return o != OutcomeRequeued && o != OutcomeRetried && o != OutcomeRepeated
}

func (o Outcome) String() string {
	return [...]string{"delivered", "requeued", "retried", "dead", "expired", "cancelled", "repeated", "duplicate"}[o]
}

// Reason says why a job became a dead letter or was re-enqueued.
type Reason string

// Reasons of dead letters.
const (
	ReasonUndecodable       Reason = "undecodable"
	ReasonInvalidHeader     Reason = "invalid_header"
	ReasonUnknownCampaign   Reason = "unknown_campaign"
	ReasonOversize          Reason = "oversize"
	ReasonOverweight        Reason = "overweight"
	ReasonRefused           Reason = "refused"
	ReasonAttemptsExhausted Reason = "attempts_exhausted"
	ReasonExpired           Reason = "expired"
)

// DeadReasons lists every reason of a dead letter.
var DeadReasons = []Reason{
	ReasonUndecodable, ReasonInvalidHeader, ReasonUnknownCampaign, ReasonOversize, ReasonOverweight,
	ReasonRefused, ReasonAttemptsExhausted, ReasonExpired,
}

// Reasons of re-enqueues.
const (
	ReasonOverflow  Reason = "overflow"   // no turn within max_open_age
	ReasonRetry     Reason = "retry"      // back-off after a temporary failure
	ReasonNotBefore Reason = "not_before" // not due yet
)

// Destination is where a job is to be written: a lane, a timer or the dead letters.
type Destination struct {
	Kind   DestinationKind
	Reason Reason
	Detail string    // dead letters: one line for the reader
	Due    time.Time // timers: when the job is to come back
}

// DestinationKind selects one of pacer's own topics.
type DestinationKind uint8

// The kinds of destination.
const (
	ToLane DestinationKind = iota
	ToTimer
	ToDead
)
