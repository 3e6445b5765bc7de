package pacer

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// Limiter reserves slots and hands unused ones back. The engine of internal/limits is one, its reference model another.
type Limiter interface {
	// Take answers the asks in their order. With an error, items that were granted nevertheless have a GrantedAt; the
	// outcome of the others is unknown.
	Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error)
	Refund(ctx context.Context, grants []delivery.Grant) error
}

// Gates closes and opens gates of sinks and of destinations for every daemon.
type Gates interface {
	// MoveGates closes each of the gates until its Until, or opens those that have none. It returns the sinks whose gates were not closed
	// for this cause before.
	MoveGates(ctx context.Context, gates []delivery.Gate) (closed []string, err error)
}

// DestinationLimits are what is set for a destination; the zero value says that nothing is.
type DestinationLimits struct {
	InFlight int    // how many calls may be in flight in this daemon; 0 for as many as the sink has
	Disabled bool   // its jobs wait
	Version  uint64 // another one means that it was changed, so that what was found of it before says nothing, such as when it is enabled; 0: it is not set
}

// DestinationReports are told what becomes of destinations. None of the methods blocks.
type DestinationReports interface {
	// Fails says that a destination has not worked since a time. It is called with each try that fails.
	Fails(sink, destination string, since time.Time, detail string)
	// Gone says that a destination wants no more jobs, ever. It is called with each try that says so.
	Gone(sink, destination, detail string)
	// Works says that a destination has taken a job. It is called with each job.
	Works(sink, destination string)
}

// Sinks delivers jobs.
type Sinks interface {
	// Resolve turns a campaign's sink ("" for the default) into the id of a configured one, always in the same way.
	Resolve(name string) (id string, ok bool)
	// Capacity is how many calls of the sink may be in flight in this daemon.
	Capacity(id string) (inFlight int, ok bool)
	Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result
}

// Keys are the keyed quotas.
type Keys interface {
	// Refuse gives a flaw to the jobs that they never allow. Their destinations are known.
	Refuse(jobs []*delivery.Job)
	// Reserve reserves turns. It never blocks; answer is called once for each job, from any goroutine, with nothing if it need not wait. leave
	// gives the turn up.
	Reserve(asks []delivery.KeyAsk, answer func(ask delivery.KeyAsk, told delivery.KeyAnswer, leave func()))
	// Count counts a job whose slot is about to come. It never blocks; answer is called once, from any goroutine.
	Count(ask delivery.KeyAsk, answer func(delivery.KeyAnswer))
	// Release gives back what was counted for a job that is not sent. It never blocks.
	Release(j *delivery.Job)
}

// Requeuer writes jobs to pacer's own topics and settles them once the broker has acknowledged.
type Requeuer interface {
	// Put never blocks.
	Put(job *delivery.Job, to delivery.Reroute)
	// Revoke drops jobs for lanes whose source is revoked, and which no produce call has taken yet.
	Revoke()
	// Throttle asks that filling lanes give way to sending for d.
	Throttle(d time.Duration)
}

// Catalog is the source of campaigns.
type Catalog interface {
	// Snapshot is the newest catalog; nil before the first was loaded.
	Snapshot() *delivery.Snapshot
	// Subscribe returns a channel that receives after every change; changes coalesce.
	Subscribe() <-chan struct{}
}

// Options of a Pacer. All are required, unless stated otherwise; Defaults has the values in comments.
type Options struct {
	Limiter  Limiter
	Gates    Gates
	Sinks    Sinks
	Requeuer Requeuer
	Catalog  Catalog
	Keys     Keys // nil: no campaign has keyed quotas
	// Backlog returns about how many jobs of a campaign wait in lanes.
	Backlog func(campaign string) int64
	// Fleet is how many daemons there are; 0: not known.
	Fleet func() int

	// Destinations returns a function that finds the destination of a job whose record names none. The function returns "" if it finds none.
	// It is nil if the sink has no destinations of its own. It is called by the goroutines that offer jobs.
	Destinations func(sink string) func(*delivery.Job) string
	// DestinationLimits returns what is set for a destination. It is called for each job, often, and never blocks.
	DestinationLimits  func(sink, destination string) DestinationLimits
	DestinationReports DestinationReports

	MinQuantum     time.Duration // 25 ms; the stretch of a timeline asked for at once
	MaxQuantum     time.Duration // 1 s; what it may grow to
	LateTolerance  time.Duration // 20 ms; how late a slot may be used
	MaxOpenAge     time.Duration // 5 s; how long a job from ingress may wait here
	MaxQueueBytes  int64         // 8 MiB; memory of the jobs of one campaign that wait for slots
	ItemsPerSecond int           // 20,000; budget of take items
	MaxWeight      int64         // 1,000
	UnknownGrace   time.Duration // 10 min; how long jobs of an unknown campaign or destination wait for it to appear
	Retry          Retry
	// MaxRetryAfter is how long a wait that a destination asks for is believed, by sink; 5 min where it is not set.
	MaxRetryAfter map[string]time.Duration
	// FollowUps is how many calls a second may be made for steps after the first of requests, by sink; 100 where it is not set.
	FollowUps map[string]int
	// Owns reports whether the jobs that were offered are still this daemon's at now. If not, those that wait are dropped, and none is
	// accepted until they are again.
	Owns func(now time.Time) bool
	// Missing returns why a sink has no destination for a job, and what to do, in one line; "" if it has one. It is called
	// from Run, for each job.
	Missing func(sink string, j *delivery.Job) string
	// Shows reports whether a campaign has series of its own in the metrics. It is called concurrently.
	Shows func(campaign string) bool

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Retry is the back-off of attempts that failed for now.
type Retry struct {
	MaxAttempts int           // 8
	Initial     time.Duration // 5 s
	Max         time.Duration // 30 min
	Jitter      float64       // 0.2: each delay is varied by up to a fifth
}

// defaultMaxRetryAfter is used for sinks without a bound of their own.
const defaultMaxRetryAfter = 5 * time.Minute

// after is how long to wait after the given number of attempts.
func (r Retry) after(attempts int) time.Duration {
	return retry.Backoff{Initial: r.Initial, Max: r.Max, Jitter: r.Jitter}.Delay(attempts)
}

// vary is a wait that a destination asked for, or up to a fifth more.
func (r Retry) vary(asked time.Duration) time.Duration {
	return asked + time.Duration(rand.Float64()*r.Jitter*float64(asked))
}

// Defaults are the default settings of a Pacer.
func Defaults() Options {
	return Options{
		MinQuantum: 25 * time.Millisecond, MaxQuantum: time.Second, LateTolerance: 20 * time.Millisecond,
		MaxOpenAge: 5 * time.Second, MaxQueueBytes: 8 << 20, ItemsPerSecond: 20_000, MaxWeight: delivery.MaxWeight,
		UnknownGrace: 10 * time.Minute,
		Retry:        Retry{MaxAttempts: 8, Initial: 5 * time.Second, Max: 30 * time.Minute, Jitter: 0.2},
	}
}
