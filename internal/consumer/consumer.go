package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	joinBackoff       = time.Second
	heartbeat         = time.Second
	topicCheck        = time.Second
	partitionsWatched = 10 * time.Second // how soon partitions added to a topic are read
)

// Consumer is one member of a consumer group. Make it with New and call Run once; Joined may be called at any time.
//
// Run waits for whatever is not there yet, topics and brokers alike, with one line in the log, and goes on by itself.
type Consumer struct {
	*shared
	opt     Options
	joined  atomic.Bool
	reading atomic.Pointer[reading] // the lanes of the last assignment; see Backlog
}

// New makes a Consumer. It connects to nothing.
func New(o Options) (*Consumer, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	b := newBudget(o.MaxBufferBytes)
	m, err := newMetrics(o.Registerer, b)
	if err != nil {
		return nil, fmt.Errorf("register the consumer's metrics: %w", err)
	}
	// A client of our own without Timeout, which kafka-go would halve for the broker's waits; every call has a deadline.
	client := &kafka.Client{Addr: o.Client.Addr, Transport: o.Client.Transport}
	if client.Addr == nil {
		client.Addr = kafka.TCP(o.Brokers...)
	}
	if client.Transport == nil {
		client.Transport = kafka.DefaultTransport
	}
	return &Consumer{
		opt: o,
		shared: &shared{
			handler: o.Handler, client: client, fetcher: &fetcher{transport: client.Transport, addr: client.Addr},
			budget: b, metrics: m, health: newHealth(o.Logger), log: o.Logger, origins: newOriginTopics(),
			steps: newSteps(), state: &watchState{}, maxWeight: o.MaxWeight, maxOpen: o.MaxOpen,
			blockers: newBlockers(o.Logger),
		},
	}, nil
}

// Joined tells whether this daemon is a member of the group and reads its partitions, be they none.
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
	debug := debugLogger{c.log}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: c.opt.Group, Brokers: c.opt.Brokers, Dialer: c.opt.Dialer, Topics: c.opt.topics(),
		GroupBalancers:    []kafka.GroupBalancer{evenBalancer{}},
		HeartbeatInterval: heartbeat, SessionTimeout: c.opt.SessionTimeout, RebalanceTimeout: c.opt.RebalanceTimeout,
		JoinGroupBackoff: joinBackoff, StartOffset: kafka.FirstOffset,
		WatchPartitionChanges: true, PartitionWatchInterval: partitionsWatched,
		Logger: debug, ErrorLogger: debug,
	})
	if err != nil {
		return fmt.Errorf("consumer group %s: %w", c.opt.Group, err)
	}
	for ctx.Err() == nil {
		gen, err := group.Next(ctx)
		switch {
		case err == nil:
			c.health.ok("group")
			c.runGeneration(ctx, gen)
		case ctx.Err() == nil:
			c.health.fail("group", fmt.Errorf("join group %s: %w", c.opt.Group, err))
		}
	}
	// Leaving takes connections of its own and may fail; the session timeout then does the same.
	return group.Close()
}

// awaitTopics returns when every topic exists. It says once what it waits for.
func (c *Consumer) awaitTopics(ctx context.Context) error {
	said := map[string]bool{}
	for {
		missing, err := c.missingTopics(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.health.fail("topics", err)
		case len(missing) == 0:
			c.health.ok("topics")
			return nil
		default:
			c.health.ok("topics")
		}
		for _, topic := range missing {
			if !said[topic] {
				said[topic] = true
				c.log.Warn("a topic does not exist; waiting for it", "topic", topic, "remedy", c.remedy(topic))
			}
		}
		if err = sleep(ctx, topicCheck); err != nil {
			return err
		}
	}
}

// remedy says who makes the topic.
func (c *Consumer) remedy(topic string) string {
	for _, t := range c.opt.Ingress {
		if t == topic {
			return "create it, or correct kafka.topics"
		}
	}
	return "run pacer migrate up"
}

// missingTopics asks which topics do not exist, or have no partitions yet.
func (c *Consumer) missingTopics(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchGrace)
	defer cancel()
	topics := c.opt.topics()
	answer, err := c.shared.client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("ask for the topics: %w", err)
	}
	known := map[string]bool{}
	for _, t := range answer.Topics {
		switch {
		case t.Error == nil:
			known[t.Name] = len(t.Partitions) > 0
		case !errors.Is(t.Error, kafka.UnknownTopicOrPartition):
			return nil, fmt.Errorf("ask for topic %s: %w", t.Name, t.Error)
		}
	}
	var missing []string
	for _, t := range topics {
		if !known[t] {
			missing = append(missing, t)
		}
	}
	return missing, nil
}
