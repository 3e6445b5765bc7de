package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// Handler takes the jobs that are read.
type Handler interface {
	// Offer hands jobs over. Jobs from timers are always taken; of lane jobs, those whose campaign's queue is full come
	// back in refused, and with each all later ones of its campaign; so do jobs of ingress that their campaign keeps there
	// (overflow block). The handler tells the source by delivery.Source.Room when there is room again. An error means that
	// none was taken; the same jobs are offered again until the generation ends.
	Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error)
	// Relieve asks that the queued jobs of src with offsets below before be moved on now, to lanes or timers, because the
	// window of open offsets is nearly full.
	Relieve(src delivery.Source, before int64)
	// Drain forgets every job that is not in flight, waits until those in flight are settled or ctx ends, and returns how
	// many are in doubt. Jobs forgotten stay open and are read again by whoever owns their partition next.
	Drain(ctx context.Context) (open int, err error)
}

// Positions keeps how far lanes and timers are read beside the group's own offsets, which expire.
type Positions interface {
	SavePositions(ctx context.Context, group string, positions []delivery.Position) error
	LoadPositions(ctx context.Context, group string) ([]delivery.Position, error)
}

// Lanes knows which campaigns are pinned to lanes.
type Lanes interface {
	// Drained says that next to nothing of a campaign has waited in a lane for a while, so that its new jobs may go direct
	// again, unless its lane is another.
	Drained(ctx context.Context, campaign string, lane int) error
	// Pinned lists the lanes of the campaigns that were pinned at least age ago.
	Pinned(ctx context.Context, age time.Duration) (map[string]int, error)
}

// Janitor removes from lanes and timers what will not be read again.
type Janitor interface {
	// Passed says that nothing of the partition before offset will be: the group's commit of it was acknowledged, and
	// Positions, where there are any, hold none before it. It is repeated every PositionInterval. Never blocks.
	Passed(topic string, partition int, offset int64)
}

// Timer is a topic whose jobs come back after a constant delay.
type Timer struct {
	Topic string
	Delay time.Duration
}

// Options of a Consumer. Brokers, Client, Group, Ingress, LaneTopic and Handler are required.
type Options struct {
	Brokers []string
	Dialer  *kafka.Dialer // of the group's own connections; nil for kafka.DefaultDialer
	// Client reads and commits. Its Transport must know all topics (MetadataTopics) and have a MetadataTTL of a few seconds
	// at most: topics that appear later are noticed within it. Its Timeout is not used: every call has a deadline.
	Client    *kafka.Client
	Group     string
	Ingress   []string
	LaneTopic string
	Timers    []Timer
	Handler   Handler
	Positions Positions // may be nil
	Lanes     Lanes     // may be nil
	Janitor   Janitor   // may be nil
	// Blocking lists the campaigns whose jobs stay in ingress until they are sent, for however long, as it is now. May be nil.
	Blocking func() iter.Seq[string]
	// SendRate is the units per second that a campaign may send; not known for a campaign that does not exist. May be nil.
	SendRate func(campaign string) (unitsPerSecond float64, known bool)

	MaxBufferBytes   int64         // 64 MiB: jobs held and fetches in flight, of the whole process
	MaxWeight        int64         // delivery.MaxWeight
	MaxOpen          int64         // 20,000, and no more: span of open offsets of one partition of ingress or a timer
	CommitInterval   time.Duration // 100 ms
	SessionTimeout   time.Duration // 10 s
	RebalanceTimeout time.Duration // 8 s
	DrainTimeout     time.Duration // 3 s: of a drain at a rebalance, when nobody sends heart-beats
	ShutdownTimeout  time.Duration // 20 s: of a drain at the end of Run
	PositionInterval time.Duration // 5 s
	Watchdog         time.Duration // 2 m: how long a partition may make no progress though it could
	// OpenAge is what Handler may take for a job of ingress or of a timer: as long as it may wait there, and be on its way.
	OpenAge time.Duration
	// Outage tells whether the broker refuses what Handler re-enqueues, so that jobs stay open. May be nil.
	Outage func() bool

	Logger     *slog.Logger          // slog.Default()
	Registerer prometheus.Registerer // a registry of its own
}

// defaults fills in what is not set and says what cannot be.
func (o *Options) defaults() error {
	for _, missing := range []struct {
		name string
		is   bool
	}{
		{"Brokers", len(o.Brokers) == 0}, {"Client", o.Client == nil}, {"Group", o.Group == ""},
		{"Ingress", len(o.Ingress) == 0}, {"LaneTopic", o.LaneTopic == ""}, {"Handler", o.Handler == nil},
	} {
		if missing.is {
			return fmt.Errorf("consumer options: %s is required", missing.name)
		}
	}
	orDefault(&o.MaxBufferBytes, 64<<20)
	orDefault(&o.MaxWeight, int64(delivery.MaxWeight))
	orDefault(&o.MaxOpen, int64(maxWindow))
	orDefault(&o.CommitInterval, 100*time.Millisecond)
	orDefault(&o.SessionTimeout, 10*time.Second)
	orDefault(&o.RebalanceTimeout, 8*time.Second)
	orDefault(&o.DrainTimeout, 3*time.Second)
	orDefault(&o.ShutdownTimeout, 20*time.Second)
	orDefault(&o.PositionInterval, 5*time.Second)
	orDefault(&o.Watchdog, 2*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	switch {
	case o.MaxBufferBytes < 2*maxFetchBytes:
		return fmt.Errorf("max_buffer_bytes must be at least %d", 2*maxFetchBytes)
	case o.MaxOpen < offerJobs || o.MaxOpen > maxWindow:
		return fmt.Errorf("max_open must be between %d and %d", offerJobs, maxWindow)
	case o.DrainTimeout+commitTimeout >= o.RebalanceTimeout:
		return fmt.Errorf("drain timeout %s leaves no time for the last commit within the rebalance timeout %s",
			o.DrainTimeout, o.RebalanceTimeout)
	}
	return o.distinctTopics()
}

// distinctTopics refuses a topic in two roles: its records would be read twice.
func (o *Options) distinctTopics() error {
	seen := map[string]bool{}
	for _, t := range o.topics() {
		if t == "" {
			return errors.New("a topic name is empty")
		}
		if seen[t] {
			return fmt.Errorf("topic %s is named twice; ingress, lanes and timers must be different topics", t)
		}
		seen[t] = true
	}
	return nil
}

// topics lists everything the group reads.
func (o *Options) topics() []string {
	topics := append(slices.Clone(o.Ingress), o.LaneTopic)
	for _, t := range o.Timers {
		topics = append(topics, t.Topic)
	}
	return topics
}

// place is the role of a topic, and the delay of a timer.
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

func orDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
