package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// Handler takes the jobs that are read.
type Handler interface {
	// Offer hands jobs over. Jobs from timers are always accepted. A lane job whose campaign's queue is full is
	// returned in refused, with all later jobs of the same campaign; so are jobs of ingress whose campaign keeps them
	// there (overflow block). The handler calls GrantCapacity of the source when there is room again. On an error no job was
	// accepted, and the same jobs are offered again as long as their partition is held.
	Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error)
	// Relieve asks the handler to move the queued jobs of src with offsets below before to lanes or timers now,
	// because the window of open offsets is nearly full.
	Relieve(src delivery.Source, before int64)
	// Yield asks the handler to give back (Release of their source) jobs of lanes that it will not send soon, because a
	// lane that has something to read waits for memory. It is called again while lanes wait.
	Yield()
	// Revoke gives every job back that is not in flight and whose source is revoked. The next owner of the partition reads it again. Jobs in
	// flight that are not settled when they come back are given back then. It does not wait for them.
	Revoke(ctx context.Context) error
}

// Positions stores the positions of lanes and timers in addition to the group's committed offsets, which expire.
type Positions interface {
	SavePositions(ctx context.Context, group string, positions []delivery.Position) error
	LoadPositions(ctx context.Context, group string) ([]delivery.Position, error)
}

// Timer is a topic whose jobs come back after a constant delay.
type Timer struct {
	Topic string
	Delay time.Duration
}

// Defaults of the settings.
const (
	DefaultMaxBufferBytes = 64 << 20
	DefaultWatchdog       = 2 * time.Minute
)

// Options of a Consumer, in which each topic has one role. Those without a default are required, except for Timers, Written and KeepDelivered.
type Options struct {
	// Client reads and commits. It must know all topics: new partitions are noticed within its MetadataTTL.
	Client    *broker.Client
	Group     string
	Ingress   []string
	LaneTopic string
	Timers    []Timer
	Written   []string // topics of results: nothing is read before they exist
	Handler   Handler
	// Receipt wraps the receipt of a partition, once for each partition, and returns the receipt of its jobs.
	Receipt   func(delivery.Receipt) delivery.Receipt
	Positions Positions
	// KeepDelivered leaves the records of delivered jobs in lanes and timers.
	KeepDelivered bool

	MaxBufferBytes   int64                 // 64 MiB: jobs in memory and fetches in flight, of the whole process
	MaxWeight        int64                 // delivery.MaxWeight
	MaxNotBefore     time.Duration         // how far ahead a job's pacer-not-before may lie; 0: unlimited
	MaxOpen          int                   // 20,000, the maximum: open jobs of one partition of ingress or a timer
	ShutdownTimeout  time.Duration         // 20 s: of a drain at the end of Run, and of what is in flight of a partition that moves
	PositionInterval time.Duration         // 5 s
	Watchdog         time.Duration         // 2 m: how long a step of a reader may take
	Logger           *slog.Logger          // slog.Default()
	Registerer       prometheus.Registerer // a registry of its own

	topicsWatched time.Duration // how soon topics and partitions that were added are read, and topics that were made anew; 5 s
	sweepEvery    time.Duration // the longest time between two sweeps of the janitor, the shortest being half of it; 20 s
	lanesFirst    time.Duration // how long ingress that was gained waits for lanes that have something to read; 1 s
}

func (o *Options) limits() record.Limits {
	return record.Limits{MaxWeight: o.MaxWeight, MaxNotBefore: o.MaxNotBefore}
}

// defaults fills in the defaults.
func (o *Options) defaults() {
	o.MaxBufferBytes = cmp.Or(o.MaxBufferBytes, DefaultMaxBufferBytes)
	o.MaxWeight = cmp.Or(o.MaxWeight, delivery.MaxWeight)
	o.MaxOpen = cmp.Or(o.MaxOpen, offset.MaxOpen)
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, 20*time.Second)
	o.PositionInterval = cmp.Or(o.PositionInterval, 5*time.Second)
	o.Watchdog = cmp.Or(o.Watchdog, DefaultWatchdog)
	o.topicsWatched = cmp.Or(o.topicsWatched, 5*time.Second)
	o.sweepEvery = cmp.Or(o.sweepEvery, 20*time.Second)
	o.lanesFirst = cmp.Or(o.lanesFirst, time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
}

// topics lists everything the group reads.
func (o *Options) topics() []string {
	topics := append(slices.Clone(o.Ingress), o.LaneTopic)
	for _, t := range o.Timers {
		topics = append(topics, t.Topic)
	}
	return topics
}

// place returns the kind of source that a topic is, and the delay of a timer.
func (o *Options) place(topic string) (delivery.Place, time.Duration) {
	if topic == o.LaneTopic {
		return delivery.FromLane, 0
	}
	for _, t := range o.Timers {
		if t.Topic == topic {
			return delivery.FromTimer, t.Delay
		}
	}
	return delivery.FromIngress, 0
}
