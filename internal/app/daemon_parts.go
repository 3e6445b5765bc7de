package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/results"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/tracing"
)

func (d *Daemon) newPacer() (*pacer.Pacer, error) {
	var limiter pacer.Limiter = d.limits
	if d.parts.WrapLimiter != nil {
		limiter = d.parts.WrapLimiter(limiter)
	}
	sinks := d.attempts()
	if d.dedupe != nil {
		sinks = d.dedupe
	}
	if d.parts.WrapSinks != nil {
		sinks = d.parts.WrapSinks(sinks)
	}
	cfg := d.parts.Config
	set := cfg.Pacing
	return pacer.New(pacer.Options{
		Destinations: d.sinks.Destinations, DestinationLimits: d.parts.destinationLimits, Missing: d.parts.missing,
		DestinationReports: d.reports,
		Limiter:            limiter, Gates: d.limits, Sinks: sinks, Requeuer: d.relay, Catalog: d.parts.Catalog,
		Backlog:    func(campaign string) int64 { return d.inLanes(campaign).Jobs },
		MinQuantum: set.MinQuantum, MaxQuantum: set.MaxQuantum, LateTolerance: set.LateTolerance,
		MaxOpenAge: set.MaxOpenAge, MaxQueueBytes: int64(set.MaxBufferBytes) / 8, ItemsPerSecond: set.ItemsPerSecond, MaxWeight: cfg.MaxWeight,
		UnknownGrace: cfg.UnknownGrace, Retry: pacer.Retry(cfg.Retry),
		MaxRetryAfter: bySink(&d.parts, func(e sink.Entry) time.Duration { return e.MaxRetryAfter }),
		FollowUps:     bySink(&d.parts, func(e sink.Entry) int { return e.FollowUps }),
		Owns:          func(now time.Time) bool { return d.consumer.Owns(now) },
		Shows:         func(campaign string) bool { return d.progress.Shows(campaign) },
		Logger:        d.parts.Log, Registerer: d.parts.Registry,
	})
}

// bySink returns a setting of each sink.
func bySink[T any](p *Parts, of func(sink.Entry) T) map[string]T {
	set := make(map[string]T, len(p.Sinks))
	for name, e := range p.Sinks {
		set[name] = of(e)
	}
	return set
}

// newGates makes what reads gates. The pacer must exist.
func (d *Daemon) newGates() *gates {
	sinks := slices.Sorted(maps.Keys(d.parts.Sinks))
	return &gates{
		read: func(ctx context.Context) ([]delivery.Gate, []delivery.Opening, error) {
			return d.limits.GatesAndOpenings(ctx, sinks)
		},
		sinks: sinks, see: d.pacer.SeeGates, until: newGateGauge(d.parts.Registry), log: d.log, logged: map[string]time.Time{},
		readDestinations: d.limits.DestinationsSince, seeDestinations: d.pacer.SeeDestinations,
	}
}

func (d *Daemon) newConsumer() (*consumer.Consumer, error) {
	cfg, topics := d.parts.Config, d.parts.Topics
	var timers []consumer.Timer
	for _, delay := range topics.Timers {
		timers = append(timers, consumer.Timer{Topic: requeue.TimerTopic(topics.Prefix, delay), Delay: delay})
	}
	options := consumer.Options{
		Client: d.parts.Kafka, Group: cfg.Kafka.Group,
		Ingress: topics.Ingress, LaneTopic: requeue.LaneTopic(topics.Prefix), Timers: timers,
		Handler: d.handler(), Receipt: d.receipt, Positions: d.parts.Catalog,
		MaxBufferBytes: int64(cfg.Pacing.MaxBufferBytes), MaxWeight: cfg.MaxWeight,
		MaxNotBefore: cfg.MaxNotBefore, Watchdog: cfg.Watchdog,
		ShutdownTimeout: drainWithin(cfg.ShutdownTimeout), Logger: d.parts.Log, Registerer: d.parts.Registry,
	}
	if d.janitor != nil {
		options.Trim = d.janitor.Trim
	}
	return consumer.New(options)
}

// drainWithin returns the shutdown timeout less the time for what follows the drain: cancelled calls that return, the
// last commit, leaving the group.
func drainWithin(shutdown time.Duration) time.Duration {
	return max(shutdown-5*time.Second, shutdown/2)
}

// newTracer makes what sends spans of attempts to a collector, nil if none is configured.
func (p *Parts) newTracer() (*tracing.Tracer, error) {
	set := p.Config.Tracing
	if set.Endpoint == "" {
		return nil, nil
	}
	tls, err := set.Client()
	if err != nil {
		return nil, fmt.Errorf("tracing.%w", err)
	}
	host, _ := os.Hostname() // "" is as good as another name
	return tracing.New(tracing.Options{
		Endpoint: set.Endpoint, Authorization: set.Authorization.Reveal(), TLS: tls, Sample: set.Sample, Host: host, Version: Version,
		Logger: p.Log, Registerer: p.Registry,
	})
}

// attempts are the sinks, whose attempts are traced if a collector is configured.
func (d *Daemon) attempts() pacer.Sinks {
	if d.tracer == nil {
		return d.sinks
	}
	return d.tracer.Sinks(d.sinks)
}

// newDedupe makes the ledger of delivered jobs, nil if dedupe is not configured.
func (d *Daemon) newDedupe() *dedupe.Ledger {
	set := d.parts.Config.Dedupe
	if set.TTL == 0 {
		return nil
	}
	return dedupe.New(dedupe.Options{
		Sinks: d.attempts(), Shards: d.parts.Redis, KeyPrefix: d.parts.Config.Redis.KeyPrefix, TTL: set.TTL,
		Open: set.OnStoreFailure == delivery.PolicyOpen, Timeouts: bySink(&d.parts, func(e sink.Entry) time.Duration { return e.Timeout }),
		Known:  func(campaign string) bool { return d.parts.Catalog.Snapshot().Campaign(campaign) != nil },
		Logger: d.parts.Log, Registerer: d.parts.Registry,
	})
}

// filtering wraps a handler if delivered jobs are remembered: delivered jobs are marked before they wait for a slot.
type filtering struct {
	consumer.Handler
	ledger *dedupe.Ledger
}

// Offer implements consumer.Handler.
func (s filtering) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	s.ledger.FilterDelivered(ctx, jobs)
	return s.Handler.Offer(ctx, jobs)
}

// admitWithin bounds one wait while the broker refuses events, if `watchdog` is at least twice as long:
// intake slows to a trickle, and the heartbeats of readers go on.
const admitWithin = 20 * time.Second

// newResults makes the writer of results, nil if none is configured.
func (p *Parts) newResults() *results.Results {
	if !p.Topics.Results {
		return nil
	}
	return results.New(results.Options{
		Client: p.Kafka, Topic: requeue.ResultsTopic(p.Topics.Prefix), Logger: p.Log, Registerer: p.Registry,
	})
}

// handler returns the handler of the jobs that are read.
func (d *Daemon) handler() consumer.Handler {
	var h consumer.Handler = d.pacer
	if d.results != nil {
		h = reporting{
			Pacer: d.pacer, results: d.results, patience: min(admitWithin, d.parts.Config.Watchdog/2),
		}
	}
	if d.dedupe != nil {
		h = filtering{Handler: h, ledger: d.dedupe}
	}
	return h
}

// receipt combines what happens when a job of a partition is settled: its event is written, then it is counted, and
// last it is settled at the partition.
func (d *Daemon) receipt(partition delivery.Receipt) delivery.Receipt {
	r := d.pacer.Receipt(partition)
	if d.results != nil {
		r = d.results.Receipt(r)
	}
	return r
}

// reporting wraps the pacer if results are written: jobs wait while no result can be written.
type reporting struct {
	*pacer.Pacer
	results  *results.Results
	patience time.Duration // of one Offer
}

// Offer implements consumer.Handler.
func (r reporting) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	if err := r.results.Admit(ctx, r.patience); err != nil {
		return nil, err
	}
	return r.Pacer.Offer(ctx, jobs)
}

// Drain implements consumer.Handler. Results of jobs that are settled during the drain are written too.
func (r reporting) Drain(ctx context.Context) (open int, err error) {
	open, err = r.Pacer.Drain(ctx)
	return open + r.results.Drain(ctx), err
}

// inLanes returns how much waits in lanes, as far as the daemons have told each other.
func (d *Daemon) inLanes(campaign string) (b requeue.Backlog) {
	b.Jobs, b.Large, b.Huge = d.progress.InLanes(campaign)
	return b
}

// newProgress makes the tracker. The pacer and the consumer must exist.
func (d *Daemon) newProgress() *progress.Tracker {
	return progress.New(progress.Options{
		Daemon: rand.Text(), Work: work{d.pacer, d.consumer}, Store: d.parts.Catalog, Snapshot: d.parts.Catalog.Snapshot,
		Exchange: progress.NewRedisExchange(d.parts.Redis.Master(0), d.parts.Config.Redis.KeyPrefix),
		Windows:  d.windows.latest, Gates: d.closedGates, Sink: d.sinks.Resolve, Stuck: d.stuck,
		Denials: d.limits.Denials,
		Node:    d.node, Readings: d.readings, Show: progress.Show(d.parts.Config.Metrics.Campaigns), Logger: d.log, Registerer: d.parts.Registry,
	})
}

// stuck returns the campaigns whose jobs their sinks do not take from this daemon.
func (d *Daemon) stuck(ctx context.Context) (list []progress.Stuck) {
	troubles, err := d.pacer.Troubles(ctx)
	if err != nil {
		return nil // it stops
	}
	for _, t := range troubles {
		cause := [...]hold.Cause{
			delivery.TroubleFailing: hold.Failing, delivery.TroubleRefused: hold.Refused,
		}[t.Kind]
		list = append(list, progress.Stuck{Campaign: t.Campaign, Cause: cause, Since: t.Since})
	}
	return list
}

// closedGates returns the gates of the sinks that are closed.
func (d *Daemon) closedGates(ctx context.Context) ([]delivery.Gate, error) {
	return d.limits.Gates(ctx, slices.Sorted(maps.Keys(d.parts.Sinks)))
}

// work combines the pacer's and the consumer's part of progress.Work.
type work struct {
	*pacer.Pacer
	consumer *consumer.Consumer
}

func (w work) Backlog() delivery.LanesBacklog { return w.consumer.Backlog() }

// lastWindows reads windows for the gauges of quotas and caches them, so that forecasts need no reads of their own.
type lastWindows struct {
	limits.Peeker
	last atomic.Pointer[windowsAt]
}

type windowsAt struct {
	windows []delivery.WindowState
	at      time.Time
}

// Peek implements limits.Peeker.
func (g *lastWindows) Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error) {
	windows, err := g.Peeker.Peek(ctx, quotas)
	g.last.Store(&windowsAt{windows, time.Now()})
	return windows, err
}

// windowsAge is how old windows may be for a forecast.
const windowsAge = 5 * time.Second

func (g *lastWindows) latest() []delivery.WindowState {
	if last := g.last.Load(); last != nil && time.Since(last.at) < windowsAge {
		return last.windows
	}
	return nil
}
