package app

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/requeue"
)

// allPartitions stands for a topic's partitions in turn.
const allPartitions = -1

// publishTarget is where `publish` writes: an ingress topic, or one lane.
type publishTarget struct {
	topic     string
	partition int // allPartitions, or the lane
}

// publishTo finds out where the jobs go. With --direct, the campaign is pinned to a lane as if it had overflowed.
func (s *services) publishTo(ctx context.Context, flags *PublishFlags) (publishTarget, error) {
	if flags.Direct {
		return s.publishLane(ctx, flags.Campaign)
	}
	topic := flags.Topic
	if topic == "" {
		topic = s.topics.Ingress[0]
	}
	if !slices.Contains(s.topics.Ingress, topic) {
		return publishTarget{}, usagef("--topic %s is not among kafka.topics, so nobody would read it; add it there", topic)
	}
	return publishTarget{topic: topic, partition: allPartitions}, nil
}

// publishLane pins the campaign to one of the lanes that there are.
func (s *services) publishLane(ctx context.Context, campaign string) (publishTarget, error) {
	topic := requeue.LaneTopic(s.topics.Prefix)
	lanes, err := requeue.Partitions(ctx, s.kafka, topic)
	if errors.Is(err, requeue.ErrNoTopic) {
		err = fmt.Errorf("%w; run pacer migrate up", err)
	}
	if err != nil {
		return publishTarget{}, fmt.Errorf("count the lanes: %w", brokersFault(err))
	}
	c, err := catalog.NewPostgres(catalog.Options{DSN: s.dsn, LanesTopic: topic, Logger: s.log})
	if err != nil {
		return publishTarget{}, UsageError{err}
	}
	defer c.Close()
	lane, err := c.Pin(ctx, campaign, lanes)
	if err != nil {
		return publishTarget{}, err
	}
	return publishTarget{topic: topic, partition: lane}, nil
}

func (t publishTarget) publish(
	ctx context.Context, p *requeue.Producer, records iter.Seq2[requeue.Record, error], onAck func(int),
) (acked int64, err error) {
	if t.partition == allPartitions {
		return p.Publish(ctx, t.topic, records, onAck)
	}
	return p.PublishTo(ctx, t.topic, t.partition, records, onAck)
}

// report is what --json prints.
func (t publishTarget) report(campaign string, acked int64) map[string]any {
	report := map[string]any{"topic": t.topic, "campaign": campaign, "published": acked}
	if t.partition != allPartitions {
		report["lane"] = t.partition
	}
	return report
}

func (t publishTarget) String() string {
	if t.partition == allPartitions {
		return t.topic
	}
	return fmt.Sprintf("%s/%d", t.topic, t.partition)
}
