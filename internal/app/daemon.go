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
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/keyed"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/limits/eventual"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
)

// Catalog is the catalog of a daemon; catalog.Postgres and catalog.Memory implement it.
type Catalog interface {
	pacer.Catalog
	consumer.Positions
	progress.Store
	catalog.FailingStore
	historyStore
	Run(ctx context.Context) error
	Ready() bool
	Refresh(ctx context.Context)
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
	keys     *keyed.Checker
	gauges   *limits.Gauges
	gates    *gates
	sinks    *sink.Router
	relay    *requeue.Relay
	pacer    *pacer.Pacer
	consumer *consumer.Consumer
	health   *health
	progress *progress.Tracker
	watchdog *watchdog
	stages   [stages]runs

	phase  atomic.Int32
	ending chan struct{} // closed when Run accepts no more jobs
}

// runs are what runs in a stage, by name.
type runs map[string]func(ctx context.Context) error

// start runs all, and calls failed with the first failure. end stops them and returns their errors.
func (r runs) start(ctx context.Context, failed func()) (end func() error) {
	ctx, stop := context.WithCancel(ctx)
	var group errgroup.Group
	for name, run := range r {
		group.Go(func() error {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				failed()
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return func() error { stop(); return group.Wait() }
}

// The stages of a daemon's end. The parts of one end when the intake and all stages behind it have ended.
const (
	books    = iota // the quota engine, while units can be granted or returned, and what follows attempts
	working         // what jobs in flight need
	counting        // after the last job, before the catalog that stores the counts
	stages
)

// The phases of a daemon.
const (
	phaseWaiting  = iota // see await
	phaseRunning         // the consumer runs
	phaseDraining        // no more intake
)

// NewDaemon builds a daemon. It opens no connection and starts nothing.
func NewDaemon(parts Parts) (*Daemon, error) {
	cfg := parts.Config
	d := &Daemon{parts: parts, log: parts.Log, ending: make(chan struct{}), stages: [stages]runs{{}, {}, {}}}
	parts.Catalogued = parts.Catalog.Snapshot
	showBuild(parts.Registry)
	leads := func() bool { return d.progress.Leads() }
	d.limits = limits.New(limits.Options{
		Shards: parts.Redis, KeyPrefix: cfg.Redis.KeyPrefix, Ledger: parts.Ledger, Quotas: func() []*delivery.Quota { return parts.Catalog.Snapshot().Shared() },
		Rates: func(in time.Duration) map[string]int64 { return parts.Catalog.Snapshot().MostIn(in) },
		Leads: leads, Fleet: func() int { return d.progress.Fleet() },
		Eventual: eventual.Options{
			Roots: parts.Roots, Sync: cfg.Eventual.Sync, LowBurst: cfg.Eventual.LowBurst, HighBurst: cfg.Eventual.HighBurst,
		}, Logger: parts.Log, Registerer: parts.Registry,
	})
	d.gauges = limits.NewGauges(d.limits, parts.Catalog.Snapshot, leads, parts.Log, parts.Registry)
	showThrottle(parts.Registry, parts.Kafka)
	d.sinks = sink.New(sink.Options{Default: cfg.DefaultSink, Sinks: parts.Sinks, Logger: parts.Log, Registerer: parts.Registry})
	d.relay = requeue.New(requeue.Options{
		Client: parts.Kafka, Topics: parts.Topics, ResultHeaders: cfg.Results.Headers, Backlog: d.inLanes, Logger: parts.Log, Registerer: parts.Registry,
	})
	attempts, filter, err := d.newAttempts()
	if err != nil {
		return nil, err
	}
	d.pacer = d.newPacer(attempts)
	d.consumer = d.newConsumer(filter)
	d.health = newHealth(parts.storeUp(parts.Redis), parts.Kafka.Ping, parts.Catalog.Snapshot, parts.Log, parts.Registry)
	promauto.With(parts.Registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_ready", Help: "1 while /readyz answers 200: jobs can flow as far as this daemon knows.",
	}, func() float64 {
		if ok, _ := d.Ready(); ok {
			return 1
		}
		return 0
	})
	d.gates = &gates{sinks: parts.sinkNames(), store: d.limits, pacer: d.pacer, until: newGateGauge(parts.Registry), log: d.log}
	d.progress = d.newProgress()
	site, err := d.newSite()
	if err != nil {
		return nil, err
	}
	server := &console.Server{
		Listen: cfg.HTTP.Listen, MetricsListen: cfg.HTTP.MetricsListen, Site: site,
		Ready: d.Ready, Healthy: d.healthy, Degraded: d.health.degraded, Gatherer: parts.Registry, Logger: parts.Log,
	}
	d.watchdog = d.newWatchdog()
	d.stages[books]["quotas"], d.stages[counting]["progress"] = d.limits.Run, d.progress.Run
	maps.Copy(d.stages[working], runs{
		"catalog": parts.Catalog.Run, "console": server.Run, "requeue": d.relay.Run, "pacer": d.pacer.Run, "sinks": d.sinks.Run,
		"history": d.keepHistory, "quota gauges": d.gauges.Run, "watchdog": d.watchdog.Run, "gates": d.gates.Run, "health": d.health.Run,
	})
	return d, nil
}

// Run runs the daemon until ctx ends, then drains it within the shutdown timeout and returns nil. It waits for
// services that cannot be reached, for as long as it takes.
func (d *Daemon) Run(ctx context.Context) error {
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	context.AfterFunc(intake, func() {
		d.watchdog.stopping()
		close(d.ending)
	})
	var ends []func() error
	for _, stage := range d.stages {
		// Everything but the intake outlives ctx, and any failure: jobs in flight need their sinks, slots and broker.
		ends = append(ends, stage.start(context.WithoutCancel(ctx), stopIntake))
	}
	d.consume(intake)
	var err error
	for _, end := range slices.Backward(ends) {
		err = errors.Join(err, end())
	}
	return errors.Join(err, d.sinks.Close())
}

// consume reads jobs from when the services have answered and the catalog is loaded until ctx ends.
func (d *Daemon) consume(ctx context.Context) {
	for d.missing() != "" {
		if retry.Sleep(ctx, awaitEvery) != nil {
			return
		}
	}
	if why := d.parts.Catalog.Snapshot().Installation.Other(d.parts.Installation()); why != "" {
		d.log.Error("the database is shared with another installation", "why", why)
	}
	unread, _ := requeue.UnreadTimers(ctx, d.parts.Kafka, d.parts.Topics) // pacer check has the error
	for _, problem := range unread {
		d.log.Error("jobs may wait for ever", "problem", problem)
	}
	d.phase.Store(phaseRunning)
	d.log.Info("taking jobs", "topics", d.parts.Topics.Ingress, "group", d.parts.Config.Kafka.Group)
	context.AfterFunc(ctx, func() {
		d.phase.Store(phaseDraining)
		d.log.Info("draining")
	})
	d.consumer.Run(ctx)
}

// size returns how many campaigns the catalog has, and how many have had jobs here.
func (d *Daemon) size() (campaigns, busy int) {
	if s := d.parts.Catalog.Snapshot(); s != nil {
		campaigns = len(s.Campaigns)
	}
	return campaigns, d.pacer.Busy()
}
