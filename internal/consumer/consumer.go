package consumer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
	"github.com/pacer/pacer/internal/retry"
)

const topicCheck = time.Second

// Consumer is one member of a consumer group. Make it with New and call Run once; Joined may be called at any time.
//
// Run waits for missing topics and brokers, with one line in the log, and continues by itself.
type Consumer struct {
	opt     Options
	budget  *budget
	metrics *metrics
	health  *broker.Health
	origins *offset.Origins
	hearts  *heartbeats
	lease   lease // of what is held

	reading atomic.Pointer[reading] // what is held, or was last; see Backlog
}

// New makes a Consumer. It does no I/O.
func New(o Options) *Consumer {
	o.defaults()
	b := newBudget(o.MaxBufferBytes)
	m := newMetrics(o.Registerer, b)
	m.waiting.nothing(&o)
	return &Consumer{
		opt: o, budget: b, metrics: m, health: broker.NewHealth(o.Logger), origins: offset.NewOrigins(),
		hearts: &heartbeats{log: o.Logger, stalled: m.stalled, bound: o.Watchdog, hearts: map[*heart]bool{}},
	}
}

const (
	memoryWatched = 100 * time.Millisecond
	yieldAfter    = 250 * time.Millisecond
	shortAfter    = 10 * time.Second // until a warning that fetches wait for memory
	warnEvery     = time.Minute
)

// watchMemory logs that fetches wait for memory, and has jobs of lanes given back while those of lanes do.
func (c *Consumer) watchMemory(ctx context.Context) {
	var warned [len(placeNames)]time.Time
	retry.Every(ctx, memoryWatched, func(now time.Time) {
		for _, from := range []delivery.Place{delivery.FromIngress, delivery.FromLane} {
			waited := c.budget.of(from).waitedFor()
			if waited > shortAfter && now.Sub(warned[from]) > warnEvery {
				warned[from] = now
				c.opt.Logger.Warn("reading waits for memory", "place", placeNames[from], "for", waited.Round(time.Second),
					"remedy", "find the sinks and campaigns that keep jobs in flight, or raise pacing.max_buffer_bytes")
			}
			if from == delivery.FromLane && waited >= yieldAfter {
				c.opt.Handler.Yield()
			}
		}
	})
}

// Joined reports whether this daemon is a member of the group and reads its partitions, if it has any.
func (c *Consumer) Joined() bool { return metric.Value(c.metrics.joined) == 1 }

// Run reads until ctx ends; then it stops fetching, waits for what is in flight within Options.ShutdownTimeout, commits,
// leaves the group and returns.
func (c *Consumer) Run(ctx context.Context) {
	if err := c.awaitTopics(ctx); err != nil {
		return // ended before there was anything to read
	}
	member := &membership{opt: &c.opt, health: c.health, lease: &c.lease, again: retry.NewSignal(), member: broker.Member{Group: c.opt.Group}}
	lasting := context.WithoutCancel(ctx)
	beating, stop := context.WithCancel(lasting)
	var beats sync.WaitGroup
	beats.Go(func() { member.beat(beating) })
	beats.Go(func() { c.hearts.run(beating) })
	for ctx.Err() == nil {
		c.hold(ctx, member)
	}
	stop()
	beats.Wait()
	member.leave(lasting)
}

// awaitTopics returns when the topics of lanes, timers and results exist. It logs once which topics are missing. The leader of the group looks
// for those of ingress (watchTopics).
func (c *Consumer) awaitTopics(ctx context.Context) error {
	said, topics := map[string]bool{}, append(c.opt.topics(), c.opt.Written...)
	for {
		_, counts, err := c.opt.Client.Identify(ctx, topics...)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.health.Fail("topics", err)
		default:
			c.health.OK("topics")
		}
		waits := err != nil
		for _, topic := range topics {
			if err != nil || counts[topic] > 0 {
				continue
			}
			ingress, remedy := slices.Contains(c.opt.Ingress, topic), "run pacer migrate up"
			if ingress {
				remedy = "create it, correct kafka.topics, or grant the user of kafka.sasl Read and Describe"
			}
			if waits = waits || !ingress; !said[topic] {
				c.opt.Logger.Warn("a topic does not exist, or may not be used; what needs it waits until it can be", "topic", topic,
					"others_wait", !ingress, "remedy", remedy)
			}
			said[topic] = true
		}
		if !waits {
			return nil
		}
		if err = retry.Sleep(ctx, topicCheck); err != nil {
			return err
		}
	}
}
