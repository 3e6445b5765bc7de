package delivery

import (
	"math"
	"strconv"
	"strings"
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

// Origin names the record that first brought a job to pacer; it survives every re-enqueue.
type Origin struct {
	Topic     string
	Partition int
	Offset    int64
	TopicID   TopicID
}

// String is <topic>/<partition>/<offset>, and "" for an unknown origin. It is also the id of a job without one from its
// producer.
func (o Origin) String() string {
	return string(o.Append(nil))
}

// Append appends String.
func (o Origin) Append(b []byte) []byte {
	if o.Topic == "" {
		return b
	}
	b = append(append(b, o.Topic...), '/')
	b = append(strconv.AppendInt(b, int64(o.Partition), 10), '/')
	return strconv.AppendInt(b, o.Offset, 10)
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

// Job is one logical request to deliver: what was published, what pacer wrote into its record since, and the receipt by
// which it is settled. It is made by the consumer and then owned by one component at a time: consumer, pacer queue, sink
// call, requeue outbox. No component touches a job after passing it on.
//
// It takes at most 512 bytes, and there is no room for more. Go's garbage collector marks larger objects one by one, and with tens of thousands of jobs
// in memory that keeps the scheduler from the processor for longer than a slot may be late.
type Job struct {
	ID       string
	Campaign string
	// Destination is the id of one of pacer.destinations that the record names, or the destination that a sink has found in the record
	// (see DestinationAt). It is "" if the record names none and no sink has searched.
	Destination string
	Weight      int64          // units of rate and quota, at least 1
	NotBefore   time.Time      // zero: at once. In Zone, where it was given as what the clocks show there.
	Zone        *time.Location // of its recipient; nil: the record names none
	ExpiresAt   time.Time      // zero: never
	Payload     []byte
	Meta
	History
	Timing
	Flaw *Flaw // nil: the record can be delivered

	Call    Call     // the last call of a sink; zero when none was made
	Account *Account // of its campaign, set by the pacer; nil while the campaign is not known

	Reading
	Receipt Receipt
}

// Meta is the rest of a record: kept on re-enqueue, or passed to sinks, and without meaning to pacer.
type Meta struct {
	ContentType string
	TraceParent string
	Key         []byte   // the record's key, kept on re-enqueue
	Headers     []Header // the record's headers that are not pacer's own, kept on re-enqueue
}

// History is the state that pacer wrote into the job's record when it moved the job.
type History struct {
	Attempt    int       // answers so far that counted as an attempt, the last one included; of a request of several steps, those of its step
	Hops       int32     // re-enqueues into a lane
	TimerHops  int32     // re-enqueues into a timer
	Origin     Origin    // the first record
	EnqueuedAt Stamp     // when pacer wrote the record this job was read from; 0 for ingress
	FirstRead  time.Time // when pacer first read the job (HeaderFirstRead, or now for ingress); counts for job_ttl
	Reason     string    // why pacer wrote the record this job was read from; of a dead letter, why it is one
	State      *State    // of a request of several steps whose first is done; nil for any other
}

// Timing is set by the pacer, and says when a job may be sent.
type Timing struct {
	TTL    time.Duration // the campaign's: time to send the job within, counted from FirstRead; 0: unlimited
	Due    time.Time     // of a retry: not to be sent before; zero: at once
	SendBy Stamp         // not to be sent after: set when its keys have allowed it, and at dispatch, since its slot passes; 0: no such time
}

// Flaw is why a record cannot be delivered at all.
type Flaw struct {
	Defect Reason // a dead-letter reason such as ReasonUndecodable
	Detail string // one line for the person who reads the dead letter
	Lost   int64  // bytes of the record that could not be read, and are not in the dead letter
}

// Reading says where and when a job was read.
type Reading struct {
	From     Place
	Priority Priority
	// Duplicate is set before the job is offered to the pacer when one with its id is known to have been delivered.
	Duplicate bool
	Cancelled bool // set before it is offered when the job was cancelled
	Capped    bool // a keyed quota lets it wait no longer: it is not sent
	Turned    bool // its turn was asked for; see HadTurn
	Returned  bool // it has waited for its destination, and goes before those that wait there now
	// Published is when its first record was written, by that record's own timestamp: history, and here for the sake of the size.
	Published ShortStamp
	Source    Source
	Offset    int64 // in Source
	Size      int64 // bytes charged to the process's buffer budget
	ReadAt    time.Time
}

// Defect is the reason of the job's flaw, "" when it has none.
func (j *Job) Defect() Reason {
	if j.Flaw == nil {
		return ""
	}
	return j.Flaw.Defect
}

// Scope is what the job's id is unique in, besides its campaign, where the id alone does not tell one job from all others:
// CloudEvents are unique by source and id, and places in a topic recur when the topic is made anew, and in other
// clusters.
func (j *Job) Scope() string {
	var id, source []byte
	for _, h := range j.Headers { // the last counts, as in record.Decode
		switch h.Key {
		case HeaderCloudEvent:
			id = h.Value
		case HeaderEventSource:
			source = h.Value
		}
	}
	switch {
	case len(id) > 0 && string(id) == j.ID:
		return string(source)
	case strings.HasPrefix(j.ID, j.Origin.Topic) && j.ID == j.Origin.String():
		return j.Origin.TopicID.String()
	}
	return ""
}

// ReadyAt is the first instant when the job may be sent: the later of NotBefore and Due, zero if neither is set.
func (j *Job) ReadyAt() time.Time {
	if j.Due.After(j.NotBefore) {
		return j.Due
	}
	return j.NotBefore
}

// Retrying reports whether the job was tried before, or put off by its destination.
func (j *Job) Retrying() bool {
	return j.Attempt > 0 || j.Reason == string(ReasonRetry) || j.Reason == string(ReasonDestination)
}

// found begins a destination that the job's record does not name, and ends the sink's name in it. Ids and names of sinks have no spaces.
const found = " "

// SetFoundDestination records the destination that the sink has found in a job whose record names none; "" for none.
func (j *Job) SetFoundDestination(sink, destination string) {
	j.Destination = found + sink + found + destination
}

// FoundDestination reports whether a sink has looked for the job's destination, which the record does not name.
func (j *Job) FoundDestination() bool { return strings.HasPrefix(j.Destination, found) }

// DestinationAt returns the job's destination in a sink, "" for none. It is not known while this sink has not looked for it.
func (j *Job) DestinationAt(sink string) (destination string, known bool) {
	if !j.FoundDestination() {
		return j.Destination, j.Destination != ""
	}
	of, destination, _ := strings.Cut(j.Destination[len(found):], found)
	if of != sink {
		return "", false
	}
	return destination, true
}

// AnyDestination returns the destination that the record names, or that a sink has found; "" for none.
func (j *Job) AnyDestination() string {
	if !j.FoundDestination() {
		return j.Destination
	}
	_, destination, _ := strings.Cut(j.Destination[len(found):], found)
	return destination
}

// Keys returns the job's keys by their names, nil for none.
func (j *Job) Keys() map[string]string {
	var keys map[string]string
	for _, h := range j.Headers {
		if name, ok := strings.CutPrefix(h.Key, HeaderKey); ok {
			if keys == nil {
				keys = map[string]string{}
			}
			keys[name] = string(h.Value)
		}
	}
	return keys
}

// KeyAt returns the job's value of a key in a sink; "" if it has none, or if its destination is not known yet.
func (j *Job) KeyAt(sink, key string) string {
	if key == PerDestination {
		destination, _ := j.DestinationAt(sink)
		return destination
	}
	for _, h := range j.Headers {
		if strings.HasPrefix(h.Key, HeaderKey) && h.Key[len(HeaderKey):] == key {
			return string(h.Value)
		}
	}
	return ""
}

// HadTurn reports whether the job has waited for its keys, or need not: no turn is reserved for it again.
func (j *Job) HadTurn() bool {
	return j.Turned || j.From == FromTimer && j.Reason == string(ReasonKey)
}

// Expired reports whether the job may no longer be sent at now.
func (j *Job) Expired(now time.Time) bool {
	return !j.ExpiresAt.IsZero() && !now.Before(j.ExpiresAt) ||
		j.TTL > 0 && !j.FirstRead.IsZero() && now.Sub(j.FirstRead) >= j.TTL
}

// Source is the partition a job was read from. Two are the same if they are equal. No method blocks.
type Source interface {
	// Name identifies the source within the process, e.g. "pacer.jobs/3".
	Name() string
	// Place is the kind of its topic.
	Place() Place
	// GrantCapacity reports that the campaign, whose jobs were refused before, has room in its queue for about units more. A timer
	// has none that were refused.
	GrantCapacity(campaign string, units int64)
	// Release gives the job at offset back as unread, with its bytes. In a lane, its campaign is left behind from that offset, and
	// its jobs are offered again after GrantCapacity; elsewhere, the job is offered again at once. Of a revoked partition, it is left to the
	// next owner.
	Release(offset int64)
	// Revoked reports whether the partition is about to move to another daemon, so that its jobs must not be begun any more, and
	// whether it has.
	Revoked() (leaving, left bool)
}

// Receipt makes the outcome of jobs durable. The receipt of a source closes the job's offset; others are decorators,
// such as one that first writes an event of the job, or counts it. One receipt serves many jobs, and may be used by
// several goroutines at once.
type Receipt interface {
	// Settle says that the job was delivered, acknowledged by the broker elsewhere, or is to be dropped for good. It never
	// blocks, and takes ownership of the job. Settling a job twice, or one of a source that is gone, does nothing.
	Settle(job *Job, outcome Outcome)
}

// Call describes one call of a sink.
type Call struct {
	At     time.Time // zero: there was none
	Took   uint32    // microseconds, at most 71 minutes
	Status int32     // HTTP status where there is one
	// Provider is what the answer said in the destination's own words; nil if nothing. Its MessageID is kept when the job is
	// written to a lane or a timer.
	Provider *Provider
}

// Stamp is an instant in nanoseconds since 1970, 0 for none: a third of a time.Time, since a Job may not be larger.
type Stamp int64

// StampOf returns the stamp of t, and 0 for one beyond the years 1678 to 2262, which no clock shows.
func StampOf(t time.Time) Stamp {
	if t.IsZero() || t.Unix() <= math.MinInt64/int64(time.Second) || t.Unix() >= math.MaxInt64/int64(time.Second) {
		return 0
	}
	return Stamp(t.UnixNano())
}

// Time returns the instant in UTC, zero for none.
func (s Stamp) Time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(s)).UTC()
}

// ShortStamp is a time in whole seconds since 1970, and 0 for none: four bytes, since a Job may not be larger.
type ShortStamp uint32

// ShortStampOf returns the stamp of t, or 0 if there is none before 1970 or after 2106.
func ShortStampOf(t time.Time) ShortStamp {
	if s := t.Unix(); s > 0 && s <= math.MaxUint32 {
		return ShortStamp(s)
	}
	return 0
}

// Time returns the time of the stamp; zero for none.
func (s ShortStamp) Time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(int64(s), 0).UTC()
}

// Settle settles the job: its last owner calls it once, and does not touch the job afterwards.
func (j *Job) Settle(outcome Outcome) { j.Receipt.Settle(j, outcome) }

// Outcome is the durable result of a job.
type Outcome uint8

// The outcomes, as they are spelled in pacer_jobs_settled_total.
const (
	OutcomeDelivered Outcome = iota
	OutcomeRequeued          // moved into a lane
	OutcomeRetried           // moved into a timer
	OutcomeDead
	OutcomeExpired
	OutcomeCancelled
	OutcomeDuplicate // not sent: a job with its id had been delivered before
	OutcomeRejected  // the destination refused it, in the normal course of things
	OutcomeCapped    // not sent: a keyed quota lets it wait no longer
)

// Outcomes lists every outcome, for zero-initialising metrics.
var Outcomes = []Outcome{
	OutcomeDelivered, OutcomeRequeued, OutcomeRetried, OutcomeDead, OutcomeExpired, OutcomeCancelled,
	OutcomeDuplicate, OutcomeRejected, OutcomeCapped,
}

// Final reports whether the job will not be seen again: it was not moved on.
func (o Outcome) Final() bool { return o != OutcomeRequeued && o != OutcomeRetried }

func (o Outcome) String() string {
	return [...]string{"delivered", "requeued", "retried", "dead", "expired", "cancelled", "duplicate", "rejected", "capped"}[o]
}

// Reason says why a job became a dead letter or was re-enqueued.
type Reason string

// Reasons of dead letters.
const (
	ReasonUndecodable        Reason = "undecodable"
	ReasonInvalidHeader      Reason = "invalid_header"
	ReasonUnknownCampaign    Reason = "unknown_campaign"
	ReasonTooLarge           Reason = "too_large"
	ReasonOverweight         Reason = "overweight"
	ReasonRefused            Reason = "refused"
	ReasonAttemptsExhausted  Reason = "attempts_exhausted"
	ReasonExpired            Reason = "expired"
	ReasonUnknownDestination Reason = "unknown_destination"
	ReasonRejected           Reason = "rejected"    // a sink that is set to keep such jobs
	ReasonDeadline           Reason = "deadline"    // a request of several steps was not done in time
	ReasonMissingKey         Reason = "missing_key" // a keyed quota needs it
)

// DetailCompleted is the detail of those with ReasonExpired whose campaign was completed when they came: their own time need not be over.
const DetailCompleted = "the campaign is completed"

// DeadReasons lists every reason of a dead letter.
var DeadReasons = []Reason{
	ReasonUndecodable, ReasonInvalidHeader, ReasonUnknownCampaign, ReasonTooLarge, ReasonOverweight,
	ReasonRefused, ReasonAttemptsExhausted, ReasonExpired, ReasonRejected, ReasonDeadline, ReasonUnknownDestination,
	ReasonMissingKey,
}

// Reasons of re-enqueues.
const (
	ReasonOverflow  Reason = "overflow"   // no turn within max_open_age
	ReasonRetry     Reason = "retry"      // back-off after a temporary failure
	ReasonNotBefore Reason = "not_before" // not due yet
	ReasonStep      Reason = "step"       // between two steps of a request, or two polls
	// ReasonDestination: the destination is closed, disabled or busy.
	ReasonDestination Reason = "destination"
	ReasonKey         Reason = "key"          // the turn of its key is to come
	ReasonKeyLine     Reason = "key_line"     // the turns of its key are given for an hour, and it has none
	ReasonHours       Reason = "hours"        // its recipient's clocks are outside the active hours
	ReasonNoZone      Reason = "no_time_zone" // the active hours are its recipient's, and its zone is not known
)

// Reroute is where a job is to be written: a lane, a timer or the dead letters.
type Reroute struct {
	Kind   RerouteKind
	Reason Reason
	Detail string    // dead letters: one line for the reader
	Due    time.Time // timers: when the job is to come back
}

// RerouteKind selects one of pacer's own topics.
type RerouteKind uint8

// The kinds of destination.
const (
	ToLane RerouteKind = iota
	ToTimer
	ToDead
	ToResult // of jobs that are settled: an event of each
)
