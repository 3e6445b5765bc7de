package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	joinBackoff = time.Second
	// heartbeat is how soon a member learns that the group rebalances. The group waits for the last one, and those that
	// have learned it before read nothing meanwhile.
	heartbeat      = 250 * time.Millisecond
	leaveTimeout   = 2 * time.Second
	sessionTimeout = 10 * time.Second
	topicCheck     = time.Second
)

// Consumer is one member of a consumer group. Make it with New and call Run once; Joined may be called at any time.
//
// Run waits for missing topics and brokers, with one line in the log, and continues by itself.
type Consumer struct {
	opt      Options
	budget   *budget
	metrics  *metrics
	health   *broker.Health
	origins  *offset.Origins
	blockers *blockers
	dealer   dealer
	watch    watchState
	lease    lease                      // of the generation
	topics   map[string]broker.Identity // those that were read last; of the goroutine of Run

	warned  [len(placeNames)]atomic.Int64 // when it was last said that fetches wait, by place
	joined  atomic.Bool
	reading atomic.Pointer[reading] // the lanes of the last assignment; see Backlog
}

// New makes a Consumer. It does no I/O.
func New(o Options) (*Consumer, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	b := newBudget(o.MaxBufferBytes)
	m := newMetrics(o.Registerer, b)
	m.waiting.nothing(&o)
	c := &Consumer{
		opt: o, budget: b, metrics: m, health: broker.NewHealth(o.Logger), origins: offset.NewOrigins(),
		blockers: newBlockers(o.Logger, o.Blocking), topics: map[string]broker.Identity{},
	}
	for _, from := range []delivery.Place{delivery.FromIngress, delivery.FromLane} {
		b.of(from).waits = func(since time.Time) { c.short(from, since) }
	}
	return c, nil
}

const (
	shortAfter = 10 * time.Second // until a warning that fetches wait for memory
	warnEvery  = time.Minute
)

// short is called while fetches wait for memory, the first of them since then.
func (c *Consumer) short(from delivery.Place, since time.Time) {
	now := time.Now()
	if warned := c.warned[from].Load(); now.Sub(since) > shortAfter && now.UnixNano()-warned > warnEvery.Nanoseconds() &&
		c.warned[from].CompareAndSwap(warned, now.UnixNano()) {
		c.opt.Logger.Warn("reading waits for memory", "place", placeNames[from], "for", now.Sub(since).Round(time.Second),
			"remedy", "find the sinks and campaigns that keep jobs in flight, or raise pacing.max_buffer_bytes")
	}
	if from == delivery.FromLane {
		c.opt.Handler.Yield()
	}
}

// Joined reports whether this daemon is a member of the group and reads its partitions, if it has any.
func (c *Consumer) Joined() bool { return c.joined.Load() }

func (c *Consumer) setJoined(is bool) {
	c.joined.Store(is)
	if is {
		c.metrics.joined.Set(1)
	} else {
		c.metrics.joined.Set(0)
	}
}

// Run reads until ctx ends; then it stops fetching, lets the handler drain within Options.ShutdownTimeout, commits,
// leaves the group and returns nil. It returns an error only for options that kafka-go does not accept.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.awaitTopics(ctx); err != nil {
		return nil // ended before there was anything to read
	}
	group, err := c.opt.Client.Group(c.opt.Logger, kafka.ConsumerGroupConfig{
		ID: c.opt.Group, Topics: c.opt.topics(),
		GroupBalancers:    c.dealer.balancers(),
		HeartbeatInterval: heartbeat, SessionTimeout: sessionTimeout, RebalanceTimeout: c.opt.RebalanceTimeout,
		JoinGroupBackoff: joinBackoff, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return fmt.Errorf("consumer group %s: %w", c.opt.Group, err)
	}
	member := broker.Member{Group: c.opt.Group}
	for ctx.Err() == nil {
		gen, err := group.Next(ctx)
		switch {
		case err == nil:
			c.health.OK("group")
			member.ID = gen.MemberID
			c.runGeneration(ctx, gen)
		case ctx.Err() == nil:
			c.health.Fail("group", fmt.Errorf("join group %s: %w", c.opt.Group, err))
			c.abandon(ctx, &member, err)
		}
	}
	// Leaving takes connections of its own and may fail; the session timeout then does the same.
	return group.Close()
}

// abandon has the group forget a member whose join failed. kafka-go begins anew as another member then, and without
// leaving: the group would wait for the first one until its session times out, in each rebalance. A group that rebalances
// still knows the member, which goes on.
func (c *Consumer) abandon(ctx context.Context, member *broker.Member, failure error) {
	if member.ID == "" || errors.Is(failure, kafka.RebalanceInProgress) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := c.opt.Client.Leave(ctx, *member); err != nil {
		c.opt.Logger.Debug("a member of the group whose join failed is not removed; trying again", "error", err)
		return
	}
	member.ID = ""
}

// awaitTopics returns when every topic exists. It logs once what it waits for.
func (c *Consumer) awaitTopics(ctx context.Context) error {
	said := map[string]bool{}
	for {
		missing, err := c.opt.Client.Missing(ctx, c.opt.topics())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.health.Fail("topics", err)
		case len(missing) == 0:
			c.health.OK("topics")
			return nil
		default:
			c.health.OK("topics")
		}
		for _, topic := range missing {
			if !said[topic] {
				said[topic] = true
				c.opt.Logger.Warn("a topic does not exist; waiting for it", "topic", topic, "remedy", c.remedy(topic))
			}
		}
		if err = retry.Sleep(ctx, topicCheck); err != nil {
			return err
		}
	}
}

// remedy says how the topic is created.
func (c *Consumer) remedy(topic string) string {
	if slices.Contains(c.opt.Ingress, topic) {
		return "create it, or correct kafka.topics"
	}
	return "run pacer migrate up"
}
