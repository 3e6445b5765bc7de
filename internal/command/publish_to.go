package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// allPartitions means the partitions of a topic in turn.
const allPartitions = -1

// publishTarget is the destination of `publish`: an ingress topic, or one lane.
type publishTarget struct {
	topic     string
	partition int // allPartitions, or the lane
}

// publishTo returns the destination of the jobs. With --direct, the campaign is pinned to a lane as if it had
// overflowed.
func publishTo(ctx context.Context, s *app.Services, flags *publishFlags) (publishTarget, error) {
	if flags.Direct {
		return publishLane(ctx, s, flags.Campaign)
	}
	topic := flags.Topic
	if topic == "" {
		topic = s.Topics.Ingress[0]
	}
	if !slices.Contains(s.Topics.Ingress, topic) {
		return publishTarget{}, config.Usagef("--topic %s is not among kafka.topics, so no daemon would read it; add it there", topic)
	}
	return publishTarget{topic: topic, partition: allPartitions}, nil
}

// publishLane pins the campaign to one of the existing lanes.
func publishLane(ctx context.Context, s *app.Services, campaign string) (publishTarget, error) {
	topic := requeue.LaneTopic(s.Topics.Prefix)
	lanes, err := s.Kafka.Partitions(ctx, topic)
	if errors.Is(err, broker.ErrNoTopic) {
		err = fmt.Errorf("%w; run pacer migrate up", err)
	}
	if err != nil {
		return publishTarget{}, fmt.Errorf("count the lanes: %w", app.BrokersFault(err))
	}
	c, err := catalog.NewPostgres(catalog.Options{DSN: s.DSN(), LanesTopic: topic, Logger: s.Log})
	if err != nil {
		return publishTarget{}, config.UsageError{Err: err}
	}
	defer c.Close()
	pins, err := c.Pin(ctx, []string{campaign}, lanes, nil)
	if err != nil {
		return publishTarget{}, err
	}
	return publishTarget{topic: topic, partition: pins[campaign]}, nil
}

func (t publishTarget) publish(
	ctx context.Context, p *broker.Producer, records iter.Seq2[delivery.Record, error], onAck func(int),
) (acked int64, err error) {
	if t.partition == allPartitions {
		return p.Publish(ctx, t.topic, records, onAck)
	}
	return p.PublishTo(ctx, []broker.Partition{{Topic: t.topic, ID: t.partition}}, records, onAck)
}

// summary returns the JSON output.
func (t publishTarget) summary(acked int64) *publishSummary {
	v := &publishSummary{Topic: t.topic, Published: acked}
	if t.partition != allPartitions {
		v.Lane = &t.partition
	}
	return v
}

func (t publishTarget) String() string {
	if t.partition == allPartitions {
		return t.topic
	}
	return fmt.Sprintf("%s/%d", t.topic, t.partition)
}
