package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/sink"
)

// Catalog is what the daemon needs of a catalog; catalog.Postgres and catalog.Memory are two.
type Catalog interface {
	Run(ctx context.Context) error
	Ready() bool
	Snapshot() *delivery.Snapshot
	Subscribe() <-chan struct{}
	Pin(ctx context.Context, campaign string, lanes int) (int, error)
	Pinned(ctx context.Context, age time.Duration) (map[string]int, error)
	Unpin(ctx context.Context, campaign string, lane int) error
	SavePositions(ctx context.Context, group string, positions []delivery.Position) error
	LoadPositions(ctx context.Context, group string) ([]delivery.Position, error)
	SaveProgress(ctx context.Context, list []delivery.Progress) error
	LoadSettled(ctx context.Context) (map[string]delivery.Settled, error)
}

// Parts is everything a daemon is put together from. What has no default stated is required.
type Parts struct {
	Brokers   []string
	Transport *kafka.Transport // its MetadataTopics name Topics.Names()
	Dialer    *kafka.Dialer
	Group     string
	Topics    requeue.TopicSpec

	Redis     limits.Shards
	KeyPrefix string
	// Ledger outlives Redis; nil: a loss of its data goes unnoticed.
	Ledger   limits.Ledger
	Eventual limits.EventualOptions // roots, sync and bursts; zero values: the defaults of internal/limits
	Catalog  Catalog

	Sinks       map[string]sink.Entry
	DefaultSink string
	Dedupe      Dedupe

	Pacing          Pacing // zero values: the defaults of internal/pacer
	MaxBufferBytes  int64  // 0: 64 MiB
	ShutdownTimeout time.Duration
	Watchdog        time.Duration // how long a partition may make no progress though it could; 0: two minutes
	SinkTimeout     time.Duration // the longest that a sink may take for a job
	Listen          string        // "": no HTTP

	// KeepDelivered leaves what was delivered in lanes and timers, for a report that is counted from them.
	KeepDelivered bool

	Logger   *slog.Logger
	Registry *prometheus.Registry

	// WrapLimiter and WrapSinks, where set, stand between the pacer and the real ones: tests break the daemon with
	// them on purpose.
	WrapLimiter func(pacer.Limiter) pacer.Limiter
	WrapSinks   func(pacer.Sinks) pacer.Sinks
}

// Pacing are the settings of the pacer.
type Pacing struct {
	MinQuantum, MaxQuantum, LateTolerance, MaxOpenAge, UnknownGrace time.Duration
	ItemsPerSecond                                                  int
	MaxWeight                                                       int64
	Retry                                                           pacer.Retry
}

// Daemon is one pacer process, put together and not yet running.
type Daemon struct {
	parts    Parts
	log      *slog.Logger
	limits   *limits.Engine
	gauges   *limits.Gauges
	sinks    *sink.Router
	dedupe   *dedupe.Ledger // nil: none
	relay    *requeue.Relay
	janitor  *requeue.Janitor // nil: none
	results  *requeue.Results // nil: none
	pacer    *pacer.Pacer
	consumer *consumer.Consumer
	console  *console.Server
	state    *campaignGauges
	glances  *glances
	progress *progress.Tracker

	phase  atomic.Int32
	ending chan struct{} // closed when Run takes no more jobs
}

// The phases of a daemon's life.
const (
	phaseWaiting  = iota // for the catalog and Redis
	phaseRunning         // the consumer runs
	phaseDraining        // no more intake
)

// quotas are those of the catalog, nil while it is not loaded.
func (p *Parts) quotas() []*delivery.Quota {
	s := p.Catalog.Snapshot()
	if s == nil {
		return nil
	}
	list := make([]*delivery.Quota, 0, len(s.Quotas))
	for _, q := range s.Quotas {
		list = append(list, q)
	}
	return list
}

// NewDaemon puts a daemon together. It connects to nothing and starts nothing.
func NewDaemon(parts Parts) (*Daemon, error) {
	parts.Watchdog = cmp.Or(parts.Watchdog, defaultWatchdog)
	d := &Daemon{parts: parts, log: parts.Logger, ending: make(chan struct{})}
	client := &kafka.Client{Addr: kafka.TCP(parts.Brokers...), Transport: parts.Transport}
	var err error
	if d.limits, err = limits.New(limits.Options{
		Shards: parts.Redis, KeyPrefix: parts.KeyPrefix, Ledger: parts.Ledger, Quotas: parts.quotas,
		Eventual: parts.Eventual, Logger: parts.Logger, Registerer: parts.Registry,
	}); err != nil {
		return nil, err
	}
	d.glances = &glances{Glancer: d.limits}
	if d.gauges, err = limits.NewGauges(d.glances, parts.Catalog.Snapshot, parts.Logger, parts.Registry); err != nil {
		return nil, err
	}
	if d.state, err = newCampaignGauges(parts.Catalog.Snapshot, parts.Registry); err != nil {
		return nil, err
	}
	if d.sinks, err = sink.New(sink.Options{
		Default: parts.DefaultSink, Sinks: parts.Sinks, Logger: parts.Logger, Registerer: parts.Registry,
	}); err != nil {
		return nil, err
	}
	if d.dedupe, err = d.newDedupe(); err != nil {
		return nil, err
	}
	if d.relay, err = requeue.New(requeue.Options{
		Client: client, Prefix: parts.Topics.Prefix, Lanes: parts.Topics.Lanes, Timers: parts.Topics.Timers,
		Pins: parts.Catalog, Logger: parts.Logger, Registerer: parts.Registry,
	}); err != nil {
		return nil, err
	}
	if d.janitor, err = parts.newJanitor(client); err != nil {
		return nil, err
	}
	if d.results, err = parts.newResults(client, parts.Registry); err != nil {
		return nil, err
	}
	if d.pacer, err = d.newPacer(); err != nil {
		return nil, err
	}
	if d.consumer, err = d.newConsumer(client); err != nil {
		return nil, err
	}
	if d.progress, err = d.newProgress(); err != nil {
		return nil, err
	}
	d.console, err = console.New(console.Options{
		Listen: parts.Listen, Ready: d.ready, Healthy: d.healthy, Gatherer: parts.Registry, Logger: parts.Logger,
	})
	return d, err
}

func (d *Daemon) newPacer() (*pacer.Pacer, error) {
	var limiter pacer.Limiter = d.limits
	if d.parts.WrapLimiter != nil {
		limiter = d.parts.WrapLimiter(limiter)
	}
	var sinks pacer.Sinks = d.sinks
	if d.dedupe != nil {
		sinks = d.dedupe
	}
	if d.parts.WrapSinks != nil {
		sinks = d.parts.WrapSinks(sinks)
	}
	set := d.parts.Pacing
	return pacer.New(pacer.Options{
		Limiter: limiter, Gates: d.limits, Sinks: sinks, Requeuer: d.relay, Catalog: d.parts.Catalog,
		MinQuantum: set.MinQuantum, MaxQuantum: set.MaxQuantum, LateTolerance: set.LateTolerance,
		MaxOpenAge: set.MaxOpenAge, ItemsPerSecond: set.ItemsPerSecond, MaxWeight: set.MaxWeight,
		UnknownGrace: set.UnknownGrace, Retry: set.Retry,
		Logger: d.parts.Logger, Registerer: d.parts.Registry,
	})
}

func (d *Daemon) newConsumer(client *kafka.Client) (*consumer.Consumer, error) {
	topics := d.parts.Topics
	delays := topics.Timers
	if len(delays) == 0 {
		delays = requeue.DefaultTimers()
	}
	var timers []consumer.Timer
	for _, delay := range delays {
		timers = append(timers, consumer.Timer{Topic: requeue.TimerTopic(topics.Prefix, delay), Delay: delay})
	}
	return consumer.New(consumer.Options{
		Brokers: d.parts.Brokers, Dialer: d.parts.Dialer, Client: client, Group: d.parts.Group,
		Ingress: topics.Ingress, LaneTopic: requeue.LaneTopic(topics.Prefix), Timers: timers,
		Handler: d.handler(), Positions: d.parts.Catalog, Lanes: unpinner{d.parts.Catalog}, SendRate: d.sendRate,
		Janitor: d.sweeper(), Blocking: d.blocking,
		MaxBufferBytes: d.parts.MaxBufferBytes, MaxWeight: d.parts.Pacing.MaxWeight,
		Watchdog: d.parts.Watchdog, OpenAge: d.parts.openAge(), Outage: d.outage,
		ShutdownTimeout: drainWithin(d.parts.ShutdownTimeout), Logger: d.parts.Logger, Registerer: d.parts.Registry,
	})
}

// openAge is how long a job of ingress may be open: until it is clear that its turn does not come, and then on its way.
func (p *Parts) openAge() time.Duration {
	return cmp.Or(p.Pacing.MaxOpenAge, Default().Pacing.MaxOpenAge) + p.SinkTimeout
}

// drainWithin leaves some of the shutdown timeout for what follows the drain: cancelled calls that return, the last
// commit, leaving the group.
func drainWithin(shutdown time.Duration) time.Duration {
	return max(shutdown-5*time.Second, shutdown/2)
}

func (d *Daemon) sendRate(campaign string) (unitsPerSecond float64, known bool) {
	c := d.parts.Catalog.Snapshot().Campaign(campaign)
	if c == nil {
		return 0, false
	}
	rate, _, _ := c.RateAt(time.Now())
	return rate.PerSecond(), true
}

// Run works until ctx ends, then drains within the shutdown timeout and returns nil. It waits for services that
// cannot be reached, for as long as it takes.
func (d *Daemon) Run(ctx context.Context) error {
	// Everything but the intake outlives ctx: jobs in flight need their sinks, their slots and their broker.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	context.AfterFunc(intake, func() { close(d.ending) })
	parts := map[string]func(context.Context) error{
		"catalog": d.parts.Catalog.Run, "console": d.console.Run, "requeue": d.relay.Run, "pacer": d.pacer.Run,
		"sinks": d.sinks.Run, "quota gauges": d.gauges.Run, "campaign gauges": d.state.Run,
		"watchdog": d.guard,
	}
	if d.janitor != nil {
		parts["janitor"] = d.janitor.Run
	}
	if d.results != nil {
		parts["results"] = d.results.Run
	}
	var group errgroup.Group
	for name, run := range parts {
		group.Go(func() error {
			if err := run(work); err != nil && !errors.Is(err, context.Canceled) {
				stopIntake() // the others go on until what is in flight is settled
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	// The quota engine keeps its books for as long as anything can be granted or handed back, and the ledger for as long as
	// anything can be delivered.
	books, closeBooks := context.WithCancel(context.WithoutCancel(ctx))
	defer closeBooks()
	var kept errgroup.Group
	kept.Go(func() error { return d.limits.Run(books) })
	if d.dedupe != nil {
		kept.Go(func() error { return d.dedupe.Run(books) })
	}
	// The counts are closed after the last job and before the catalog that keeps them.
	counting, stopCounting := context.WithCancel(work)
	defer stopCounting()
	var counted errgroup.Group
	counted.Go(func() error { return d.progress.Run(counting) })
	err := d.consume(intake)
	stopCounting()
	err = errors.Join(err, counted.Wait())
	stop()
	err = errors.Join(err, group.Wait())
	closeBooks()
	return errors.Join(err, kept.Wait(), d.sinks.Close())
}

func (d *Daemon) consume(ctx context.Context) error {
	if !d.await(ctx) {
		return nil
	}
	d.phase.Store(phaseRunning)
	d.log.Info("taking jobs", "topics", d.parts.Topics.Ingress, "group", d.parts.Group)
	context.AfterFunc(ctx, func() {
		d.phase.Store(phaseDraining)
		d.log.Info("draining")
	})
	if err := d.consumer.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("consumer: %w", err)
	}
	return nil
}

// await waits until the catalog is loaded, Redis has answered, and the topic of the results is there, if there are any:
// without them no job can go anywhere. It reports false when ctx ended first.
func (d *Daemon) await(ctx context.Context) bool {
	warned := false
	for {
		err := d.limits.Ping(ctx)
		if err == nil && d.parts.Catalog.Ready() && (d.results == nil || d.results.Ready()) {
			return true
		}
		if err != nil && !warned && ctx.Err() == nil {
			warned = true
			d.log.Warn("redis does not answer; retrying until it does", "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(awaitEvery):
		}
	}
}

const awaitEvery = 100 * time.Millisecond

// ready tells /readyz whether jobs can flow, and if not, what is missing.
func (d *Daemon) ready() (ok bool, why string) {
	switch {
	case d.phase.Load() == phaseDraining:
		return false, "draining"
	case !d.parts.Catalog.Ready():
		return false, "the catalog is not loaded: is PostgreSQL reachable, and migrated?"
	case d.results != nil && !d.results.Ready():
		return false, "the topic of the results has not been found: is Kafka reachable, and migrated?"
	case d.phase.Load() == phaseWaiting:
		return false, "redis has not answered yet"
	case !d.consumer.Joined():
		return false, "the consumer group is not joined: is Kafka reachable, and are all topics there?"
	}
	return true, "ready"
}
