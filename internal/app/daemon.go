// Package app builds a daemon from its configuration, and runs it until it is told to stop.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/limits/eventual"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/results"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/tracing"
)

// Catalog is the catalog of a daemon; catalog.Postgres and catalog.Memory implement it.
type Catalog interface {
	Run(ctx context.Context) error
	Ready() bool
	Snapshot() *delivery.Snapshot
	Refresh(ctx context.Context)
	Subscribe() <-chan struct{}
	SavePositions(ctx context.Context, group string, positions []delivery.Position) error
	LoadPositions(ctx context.Context, group string) ([]delivery.Position, error)
	SaveProgress(ctx context.Context, list []delivery.Progress) error
	LoadSettled(ctx context.Context) (map[string]delivery.Settled, error)
	NoteFailing(ctx context.Context, since map[string]time.Time) error
	DisableFailing(ctx context.Context, id string, seen int64, reason string) (done bool, err error)
	LoadOutlooks(ctx context.Context) (map[string]delivery.Outlook, error)
}

// Registry is where metrics are registered and gathered; *prometheus.Registry is one.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Parts are the parts of a daemon. They are required unless stated otherwise.
type Parts struct {
	*Services // OpenKafka has been called
	Redis     *shards.Set
	Roots     []redis.UniversalClient // of quotas in mode eventual; none: Redis
	Ledger    ledger.Database         // independent of Redis; nil: a loss of Redis's data is not detected
	Catalog   Catalog
	Sinks     map[string]sink.Entry
	Registry  Registry

	// KeepDelivered keeps delivered jobs in lanes and timers, for a report that counts them.
	KeepDelivered bool
	// WrapLimiter and WrapSinks, if set, wrap the limiter and the sinks of the pacer: tests inject faults with them.
	WrapLimiter func(pacer.Limiter) pacer.Limiter
	WrapSinks   func(pacer.Sinks) pacer.Sinks
}

// Daemon is one pacer process, built and not yet running.
type Daemon struct {
	parts    Parts
	log      *slog.Logger
	limits   *limits.Engine
	gauges   *limits.Gauges
	sinks    *sink.Router
	tracer   *tracing.Tracer // nil: none
	dedupe   *dedupe.Ledger  // nil: none
	relay    *requeue.Relay
	janitor  *consumer.Janitor // nil: none
	results  *results.Results  // nil: none
	pacer    *pacer.Pacer
	consumer *consumer.Consumer
	console  site
	windows  *lastWindows
	gates    *gates
	reports  *destinationReports
	stores   *stores
	progress *progress.Tracker
	manager  *supervisor

	life
}

// site is what operators look at in a browser.
type site struct {
	server *console.Server
	admin  *catalog.Admin // nil: there is no database
}

// life is how far a daemon has come.
type life struct {
	phase  atomic.Int32
	ending chan struct{} // closed when Run accepts no more jobs
}

// The phases of a daemon.
const (
	phaseWaiting  = iota // see await
	phaseRunning         // the consumer runs
	phaseDraining        // no more intake
)

// quotas returns the quotas of the catalog, nil while it is not loaded.
func (p *Parts) quotas() []*delivery.Quota {
	s := p.Catalog.Snapshot()
	if s == nil {
		return nil
	}
	return slices.AppendSeq(make([]*delivery.Quota, 0, len(s.Quotas)), maps.Values(s.Quotas))
}

// NewDaemon builds a daemon. It opens no connection and starts nothing.
func NewDaemon(parts Parts) (*Daemon, error) {
	cfg := parts.Config
	d := &Daemon{parts: parts, log: parts.Log, life: life{ending: make(chan struct{})}}
	parts.Catalogued = parts.Catalog.Snapshot
	var err error
	if d.limits, err = limits.New(limits.Options{
		Shards: parts.Redis, KeyPrefix: cfg.Redis.KeyPrefix, Ledger: parts.Ledger, Quotas: parts.quotas,
		Leads: func() bool { return d.progress.Leads() }, Fleet: func() int { return d.progress.Fleet() },
		Eventual: eventual.Options{
			Roots: parts.Roots, Sync: cfg.Eventual.Sync, LowBurst: cfg.Eventual.LowBurst, HighBurst: cfg.Eventual.HighBurst,
		}, Logger: parts.Log, Registerer: parts.Registry,
	}); err != nil {
		return nil, err
	}
	d.windows = &lastWindows{Peeker: limits.NewSharedWindows(d.limits, func() bool { return d.progress.Leads() })}
	d.gauges = limits.NewGauges(d.windows, parts.Catalog.Snapshot, parts.Log, parts.Registry)
	showBuild(parts.Registry)
	showThrottle(parts.Registry, parts.Kafka)
	if d.sinks, err = sink.New(sink.Options{
		Default: cfg.DefaultSink, Sinks: parts.Sinks, Logger: parts.Log, Registerer: parts.Registry,
	}); err != nil {
		return nil, err
	}
	if d.tracer, err = parts.newTracer(); err != nil {
		return nil, err
	}
	d.dedupe = d.newDedupe()
	if d.relay, err = requeue.New(requeue.Options{
		Client: parts.Kafka, Topics: parts.Topics, Backlog: d.inLanes, Logger: parts.Log, Registerer: parts.Registry,
	}); err != nil {
		return nil, err
	}
	if !parts.KeepDelivered {
		d.janitor = consumer.NewJanitor(parts.Kafka, parts.Log, parts.Registry)
	}
	d.results = parts.newResults()
	d.reports = parts.newDestinationReports()
	if d.pacer, err = d.newPacer(); err != nil {
		return nil, err
	}
	if d.consumer, err = d.newConsumer(); err != nil {
		return nil, err
	}
	d.gates = d.newGates()
	d.stores = newStores(parts.Redis.Up, parts.Kafka.Ping, parts.Log, parts.Registry)
	showReady(parts.Registry, d.Ready)
	d.progress = d.newProgress()
	site, err := d.newSite()
	if err != nil {
		return nil, err
	}
	d.console.server = &console.Server{
		Listen: cfg.HTTP.Listen, MetricsListen: cfg.HTTP.MetricsListen, Site: site,
		Ready: d.Ready, Healthy: d.healthy, Degraded: d.Degraded, Gatherer: parts.Registry, Logger: parts.Log,
	}
	d.manager = d.newSupervisor()
	return d, nil
}

// Run runs the daemon until ctx ends, then drains it within the shutdown timeout and returns nil. It waits for
// services that cannot be reached, for as long as it takes.
func (d *Daemon) Run(ctx context.Context) error {
	// Everything but the intake outlives ctx: jobs in flight need their sinks, slots and broker.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	context.AfterFunc(intake, func() { close(d.ending) })
	parts := map[string]func(context.Context) error{
		"catalog": d.parts.Catalog.Run, "console": d.console.server.Run, "requeue": d.relay.Run, "pacer": d.pacer.Run,
		"sinks": d.sinks.Run, "quota gauges": d.gauges.Run,
		"watchdog": d.watch, "gates": d.gates.Run, "reports of destinations": d.reports.Run, "stores": d.stores.Run, "supervisor": d.manager.Run,
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
				stopIntake() // the other parts run on until the jobs in flight are settled
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	// The quota engine runs as long as units can be granted or returned, and the ledger as long as jobs can be
	// delivered.
	books, closeBooks := context.WithCancel(context.WithoutCancel(ctx))
	defer closeBooks()
	var kept errgroup.Group
	kept.Go(func() error { return d.limits.Run(books) })
	if d.dedupe != nil {
		kept.Go(func() error { return d.dedupe.Run(books) })
	}
	if d.tracer != nil {
		kept.Go(func() error { return d.tracer.Run(books) })
	}
	// The counts stop after the last job and before the catalog that stores them.
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
	if d.console.admin != nil {
		d.console.admin.Close()
	}
	return errors.Join(err, kept.Wait(), d.sinks.Close())
}

func (d *Daemon) consume(ctx context.Context) error {
	if !d.await(ctx) {
		return nil
	}
	d.phase.Store(phaseRunning)
	d.log.Info("taking jobs", "topics", d.parts.Topics.Ingress, "group", d.parts.Config.Kafka.Group)
	context.AfterFunc(ctx, func() {
		d.phase.Store(phaseDraining)
		d.log.Info("draining")
		d.manager.stopping()
	})
	if err := d.consumer.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("consumer: %w", err)
	}
	return nil
}

// size returns how many campaigns the catalog has, and how many have had jobs here.
func (d *Daemon) size() (campaigns, busy int) {
	if s := d.parts.Catalog.Snapshot(); s != nil {
		campaigns = len(s.Campaigns)
	}
	return campaigns, d.pacer.Busy()
}

// Ready is the answer of /readyz: whether jobs can flow, and if not, what is missing.
func (d *Daemon) Ready() (ok bool, why string) {
	switch missing := d.missing(); {
	case d.phase.Load() == phaseDraining:
		return false, "draining"
	case missing != "":
		return false, missing
	case !d.consumer.Joined():
		return false, "the consumer group is not joined: is Kafka reachable, and are all topics there?"
	}
	return true, "ready"
}
