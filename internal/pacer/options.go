package pacer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// Limiter reserves slots and hands unused ones back. The engine of internal/limits is one, its reference model another.
type Limiter interface {
	// Take answers the asks in their order. With an error, items that were granted nonetheless have a GrantedAt; of the
	// others nothing is known.
	Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error)
	Refund(ctx context.Context, grants []delivery.Grant) error
}

// Gates closes and opens the gate of a sink for every daemon.
type Gates interface {
	// CloseGate grants nothing on the gate for d. With probe, one job is let through when d is over, and one a second
	// from then on, until OpenGate.
	CloseGate(ctx context.Context, gate string, d time.Duration, probe bool) error
	// OpenGate opens what was closed with probe, and nothing else.
	OpenGate(ctx context.Context, gate string) error
}

// Sinks delivers jobs.
type Sinks interface {
	// Resolve turns a campaign's sink ("" for the default) into the id of a configured one.
	Resolve(name string) (id string, ok bool)
	// Capacity is how many calls of the sink may be in flight in this daemon.
	Capacity(id string) (inFlight int, ok bool)
	Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result
}

// Requeuer writes jobs to pacer's own topics and settles them once the broker has acknowledged.
type Requeuer interface {
	// Put never blocks.
	Put(job *delivery.Job, to delivery.Destination)
	// Drain drops what no produce call has taken yet, waits for the calls under way, and returns how many jobs are
	// in doubt when ctx ends before them.
	Drain(ctx context.Context) (inDoubt int)
	// Hold asks that filling lanes give way to sending for d.
	Hold(d time.Duration)
}

// Catalog tells which campaigns there are.
type Catalog interface {
	// Snapshot is the newest catalog; nil before the first was loaded.
	Snapshot() *delivery.Snapshot
	// Subscribe returns a channel that receives after every change; changes coalesce.
	Subscribe() <-chan struct{}
}

// Options of a Pacer. The collaborators are required; durations and counts have the defaults stated.
type Options struct {
	Limiter  Limiter
	Gates    Gates
	Sinks    Sinks
	Requeuer Requeuer
	Catalog  Catalog

	MinQuantum     time.Duration // 25 ms; the stretch of a timeline asked for at once
	MaxQuantum     time.Duration // 1 s; what it may grow to
	LateTolerance  time.Duration // 20 ms; how late a slot may be used
	MaxOpenAge     time.Duration // 5 s; how long a job from ingress may wait here
	ItemsPerSecond int           // 20,000; budget of take items
	MaxWeight      int64         // 1,000
	MaxLaneJobs    int64         // 2,048; jobs of one campaign held here that came from a lane
	UnknownGrace   time.Duration // 10 min; how long an unknown campaign's jobs wait for it to appear
	Retry          Retry
	OutageAfter    int // 5; consecutive failures that close a sink's gate

	Logger     *slog.Logger          // slog.Default()
	Registerer prometheus.Registerer // a registry of its own
}

// Retry is the back-off of attempts that failed for now.
type Retry struct {
	MaxAttempts int           // 8
	Initial     time.Duration // 5 s
	Max         time.Duration // 30 min
	Jitter      float64       // 0.2: each delay is varied by up to a fifth
}

func (o *Options) defaults() error {
	for name, missing := range map[string]bool{
		"Limiter": o.Limiter == nil, "Gates": o.Gates == nil, "Sinks": o.Sinks == nil,
		"Requeuer": o.Requeuer == nil, "Catalog": o.Catalog == nil,
	} {
		if missing {
			return fmt.Errorf("pacer options: %s is required", name)
		}
	}
	orDuration(&o.MinQuantum, 25*time.Millisecond)
	orDuration(&o.MaxQuantum, time.Second)
	orDuration(&o.LateTolerance, 20*time.Millisecond)
	orDuration(&o.MaxOpenAge, 5*time.Second)
	orDuration(&o.UnknownGrace, 10*time.Minute)
	orDuration(&o.Retry.Initial, 5*time.Second)
	orDuration(&o.Retry.Max, 30*time.Minute)
	orInt(&o.ItemsPerSecond, 20_000)
	orInt(&o.Retry.MaxAttempts, 8)
	orInt(&o.OutageAfter, 5)
	orInt(&o.MaxWeight, delivery.MaxWeight)
	orInt(&o.MaxLaneJobs, 2048)
	if o.MinQuantum < 10*time.Millisecond || o.MaxQuantum < o.MinQuantum {
		return errors.New("pacing.min_quantum must be at least 10ms and at most pacing.max_quantum")
	}
	if o.Retry.Jitter < 0 || o.Retry.Jitter >= 1 {
		return errors.New("retry.jitter must be at least 0 and below 1")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return nil
}

func orDuration(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

func orInt[T int | int64](n *T, value T) {
	if *n == 0 {
		*n = value
	}
}
