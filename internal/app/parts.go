package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/keyed"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/tracing"
)

// awaitEvery is the pause between two looks at what is missing.
const awaitEvery = 20 * time.Millisecond

// newAttempts returns the sinks: with a collector their attempts are traced, with dedupe they get no job that was delivered before, and keyed
// quotas are kept.
// It also returns the part that marks such jobs, and cancelled ones, when they are read, or nil.
func (d *Daemon) newAttempts() (attempts pacer.Sinks, filter *dedupe.Ledger, err error) {
	cfg := d.parts.Config
	attempts = d.sinks
	if set := &cfg.Tracing; set.Endpoint != "" {
		tls, err := set.Client()
		if err != nil {
			return nil, nil, fmt.Errorf("tracing.%w", err)
		}
		host, _ := os.Hostname() // "" is as good as another name
		tracer, err := tracing.New(tracing.Options{
			Endpoint: set.Endpoint, Authorization: set.Authorization.Reveal(), TLS: tls, Sample: set.Sample, Host: host, Version: Version,
			Logger: d.log, Registerer: d.parts.Registry,
		})
		if err != nil {
			return nil, nil, err
		}
		d.stages[books]["tracing"] = tracer.Run
		attempts = tracer.Sinks(d.sinks)
	}
	if cfg.Dedupe.TTL > 0 {
		filter = dedupe.New(dedupe.Options{
			Sinks: attempts, Shards: d.parts.Redis, KeyPrefix: cfg.Redis.KeyPrefix, TTL: cfg.Dedupe.TTL,
			Open: cfg.Dedupe.OnStoreFailure == delivery.PolicyOpen, Timeouts: bySink(&d.parts, func(e sink.Entry) time.Duration { return e.Timeout }),
			Known:  func(campaign string) bool { return d.parts.Catalog.Snapshot().Campaign(campaign) != nil },
			Logger: d.log, Registerer: d.parts.Registry,
		})
		d.stages[books]["dedupe"] = filter.Run
		attempts = filter
	}
	d.keys = keyed.New(keyed.Options{
		Sinks: attempts, Shards: d.parts.Redis, KeyPrefix: cfg.Redis.KeyPrefix, Snapshot: d.parts.Catalog.Snapshot, Epoch: d.limits.Epoch,
		Logger: d.log, Registerer: d.parts.Registry,
	})
	d.stages[books]["keyed quotas"] = d.keys.Run
	attempts = d.keys
	if d.parts.WrapSinks != nil {
		attempts = d.parts.WrapSinks(attempts)
	}
	return attempts, filter, nil
}

func (d *Daemon) newPacer(attempts pacer.Sinks) *pacer.Pacer {
	var limiter pacer.Limiter = d.limits
	if d.parts.WrapLimiter != nil {
		limiter = d.parts.WrapLimiter(limiter)
	}
	p, cfg := &d.parts, d.parts.Config
	after := map[string]time.Duration{}
	for name, e := range p.Sinks {
		if e.Destinations {
			after[name] = e.DisableAfter
		}
	}
	reports := catalog.NewDestinationReports(p.Catalog, p.destination, after, d.log)
	d.stages[working]["reports of destinations"] = reports.Run
	set := cfg.Pacing
	return pacer.New(pacer.Options{
		Destinations: d.sinks.Destinations, DestinationLimits: p.destinationLimits, Missing: p.missing,
		DestinationReports: reports,
		Limiter:            limiter, Gates: d.limits, Sinks: attempts, Requeuer: d.relay, Catalog: p.Catalog,
		Keys:       d.keys,
		Backlog:    func(campaign string) int64 { return d.inLanes(campaign).Jobs },
		Fleet:      func() int { return d.progress.Fleet() },
		MinQuantum: set.MinQuantum, MaxQuantum: set.MaxQuantum, LateTolerance: set.LateTolerance,
		MaxOpenAge: set.MaxOpenAge, MaxQueueBytes: int64(set.MaxBufferBytes) / 8, ItemsPerSecond: set.ItemsPerSecond, MaxWeight: cfg.MaxWeight,
		UnknownGrace: cfg.UnknownGrace, Retry: pacer.Retry(cfg.Retry),
		MaxRetryAfter: bySink(p, func(e sink.Entry) time.Duration { return e.MaxRetryAfter }),
		FollowUps:     bySink(p, func(e sink.Entry) int { return e.FollowUps }),
		Owns:          func(now time.Time) bool { return d.consumer.Owns(now) },
		Shows:         func(campaign string) bool { return d.progress.Shows(campaign) },
		Logger:        d.log, Registerer: p.Registry,
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

func (p *Parts) sinkNames() []string { return slices.Sorted(maps.Keys(p.Sinks)) }

// destination returns a row of pacer.destinations; nil if there is none.
func (p *Parts) destination(id string) *delivery.Destination {
	return p.Catalog.Snapshot().Destination(id)
}

// destinationLimits returns what is set for a destination: what its row of pacer.destinations says, where the sink sends to those.
func (p *Parts) destinationLimits(sink, destination string) (set pacer.DestinationLimits) {
	if e := p.destination(destination); e != nil && p.Sinks[sink].Destinations {
		set = pacer.DestinationLimits{InFlight: e.MaxInFlight, Disabled: e.Disabled(), Version: uint64(e.Renewed) + 1}
	}
	return set
}

// missing returns why a sink has no destination for a job, in one line; "" if it has one, or looks for none in pacer.destinations.
func (p *Parts) missing(sink string, j *delivery.Job) string {
	if !p.Sinks[sink].Destinations {
		return ""
	}
	id, _ := j.DestinationAt(sink)
	if id == "" {
		return "the job names no destination, and its sink " + sink + " needs one; publish it with " + delivery.HeaderDestination
	}
	switch e := p.destination(id); {
	case e == nil:
		return "no destination with the id " + id + "; create it with pacer destination create, then replay"
	case !e.Serves(sink):
		return fmt.Sprintf("destination %s belongs to the sink %s, and the campaign's is %s; change one of them, then replay", e.ID, e.Sink, sink)
	}
	return ""
}

func (d *Daemon) newConsumer(filter *dedupe.Ledger) *consumer.Consumer {
	p, cfg, topics := &d.parts, d.parts.Config, d.parts.Topics
	var timers []consumer.Timer
	for _, delay := range topics.Timers {
		timers = append(timers, consumer.Timer{Topic: requeue.TimerTopic(topics.Prefix, delay), Delay: delay})
	}
	receipt, written := d.pacer.Receipt, []string(nil)
	if topics.Results {
		written = []string{requeue.ResultsTopic(topics.Prefix)}
		// An event of a settled job is written, then the job is counted, and last it is settled at its partition.
		receipt = func(partition delivery.Receipt) delivery.Receipt {
			return d.relay.Receipt(d.pacer.Receipt(partition))
		}
	}
	return consumer.New(consumer.Options{
		Client: p.Kafka, Group: cfg.Kafka.Group,
		Ingress: topics.Ingress, LaneTopic: requeue.LaneTopic(topics.Prefix), Timers: timers, Written: written,
		Handler: d.newIntake(filter), Receipt: receipt, Positions: p.Catalog,
		MaxBufferBytes: int64(cfg.Pacing.MaxBufferBytes), MaxWeight: cfg.MaxWeight,
		MaxNotBefore: cfg.MaxNotBefore, Watchdog: cfg.Watchdog, KeepDelivered: p.KeepDelivered,
		// Then the last commit is made, the group is left, and calls that have not returned are cancelled.
		ShutdownTimeout: max(cfg.ShutdownTimeout-5*time.Second, cfg.ShutdownTimeout/2), Logger: d.log, Registerer: p.Registry,
	})
}

// intake is the pacer for the readers.
type intake struct {
	*pacer.Pacer
	results  *requeue.Relay // nil: none are written
	patience time.Duration  // for which one offer waits while no result can be written
	filter   *dedupe.Ledger // nil: delivered and cancelled jobs are not known
}

// admitWithin bounds one wait while the broker refuses events, if `watchdog` is at least twice as long:
// intake slows to a trickle, and the heartbeats of readers go on.
const admitWithin = 20 * time.Second

func (d *Daemon) newIntake(filter *dedupe.Ledger) intake {
	i := intake{Pacer: d.pacer, patience: min(admitWithin, d.parts.Config.Watchdog/2), filter: filter}
	if d.parts.Topics.Results {
		i.results = d.relay
	}
	return i
}

// Offer implements consumer.Handler.
func (i intake) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	if i.results != nil {
		if err := i.results.Admit(ctx, i.patience); err != nil {
			return nil, err
		}
	}
	if i.filter != nil {
		i.filter.Filter(ctx, jobs)
	}
	return i.Pacer.Offer(ctx, jobs)
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
		Windows:  d.gauges.Latest, Gates: d.gates.latest, Sink: d.sinks.Resolve,
		Recount: d.recount(), Ledger: d.parts.Config.Dedupe.Waits(),
		Node: d.node, Readings: d.readings, Show: progress.Show(d.parts.Config.Metrics.Campaigns), Logger: d.log, Registerer: d.parts.Registry,
	})
}

// recount returns what counts the published jobs of a campaign. With a dedupe ledger nothing does: not each of them is settled.
func (d *Daemon) recount() func(ctx context.Context, campaign string) (int64, map[string]int64, error) {
	if d.parts.Config.Dedupe.TTL > 0 {
		return nil
	}
	return jobs.Topics{Client: d.parts.Kafka, Group: d.parts.Config.Kafka.Group, TopicSpec: d.parts.Topics}.Published
}

// node describes this daemon to those who look at the fleet.
func (d *Daemon) node() progress.Daemon {
	host, _ := os.Hostname() // "" if it has none
	ok, why := d.Ready()
	if ok {
		why = d.health.degraded()
	}
	node := progress.Daemon{Host: host, Address: d.parts.Config.HTTP.Listen, Version: Version, Ready: ok, State: why}
	if !d.consumer.Joined() { // until it has lost its partitions it sends what it has read
		node.KafkaAway = d.health.kafkaAway()
	}
	return node
}

// readings are what this daemon tells the others of its work.
func (d *Daemon) readings() progress.Readings {
	slots, partitions, sinks := d.pacer.Readings(), d.consumer.Readings(), d.sinks.Readings()
	r := progress.Readings{
		Figures: progress.DaemonFigures{
			Ingress: partitions.Ingress, Timers: partitions.Timers, Stalled: partitions.Stalled,
			BufferBytes: partitions.Bytes, BufferMost: partitions.Most, Quantum: slots.Quantum.Seconds(),
		},
		Forfeited: slots.Forfeited, Lateness: slots.Lateness, Sinks: make([]progress.SinkReport, len(sinks)), Keys: d.keys.Waits(),
	}
	for i := range sinks {
		s := &sinks[i]
		r.Sinks[i] = progress.SinkReport{Sink: s.Sink, InFlight: int64(s.InFlight), Most: int64(s.Most), Took: s.Took, Failure: s.Failure}
		for class, n := range s.Answers {
			r.Sinks[i].Answers[class] = float64(n)
		}
	}
	for _, d := range d.pacer.Destinations() {
		one := progress.SinkReport{Sink: d.Sink, Of: d.Name, Took: d.Took, Failure: d.Failure}
		for class, n := range d.Answers {
			one.Answers[class] = float64(n)
		}
		r.Sinks = append(r.Sinks, one)
	}
	return r
}

// work combines the pacer's and the consumer's part of progress.Work.
type work struct {
	*pacer.Pacer
	consumer *consumer.Consumer
}

func (w work) Backlog() delivery.LanesBacklog { return w.consumer.Backlog() }
