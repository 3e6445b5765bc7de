package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/requeue"
)

// publishTarget is the destination of `publish`: an ingress topic, or the lanes of the campaign.
type publishTarget struct {
	topic string
	lanes []int // of --direct, in the order in which the campaign takes them; none: all partitions of the topic, in turn
}

// publishTo returns the destination of the jobs. With --direct, that is lanes.
func publishTo(ctx context.Context, s *app.Services, flags *publishFlags) (publishTarget, error) {
	if flags.Direct {
		return publishLanes(ctx, s, flags.Campaign)
	}
	topic := flags.Topic
	if topic == "" {
		topic = s.Topics.Ingress[0]
	}
	if !slices.Contains(s.Topics.Ingress, topic) {
		return publishTarget{}, config.Usagef("--topic %s is not among kafka.topics, so no daemon would read it; add it there", topic)
	}
	return publishTarget{topic: topic}, nil
}

// directShare is the part of all lanes that jobs of one campaign are published to, as a divisor.
const directShare = 8

// publishLanes returns the first lanes in the order of the campaign.
func publishLanes(ctx context.Context, s *app.Services, campaign string) (publishTarget, error) {
	topic := requeue.LaneTopic(s.Topics.Prefix)
	lanes, err := s.Kafka.Partitions(ctx, topic)
	if errors.Is(err, broker.ErrNoTopic) {
		err = fmt.Errorf("%w; run pacer migrate up", err)
	}
	if err != nil {
		return publishTarget{}, fmt.Errorf("count the lanes: %w", app.BrokersFault(err))
	}
	to := publishTarget{topic: topic}
	for order, i := delivery.OrderOfLanes(campaign, lanes), 0; i < max(1, lanes/directShare); i++ {
		to.lanes = append(to.lanes, order.Lane(i))
	}
	return to, nil
}

func (t publishTarget) publish(
	ctx context.Context, p *broker.Producer, records iter.Seq2[delivery.Record, error], onAck func(int),
) (acked int64, err error) {
	if len(t.lanes) == 0 {
		return p.Publish(ctx, t.topic, records, onAck)
	}
	to := make([]broker.Partition, len(t.lanes))
	for i, lane := range t.lanes {
		to[i] = broker.Partition{Topic: t.topic, ID: lane}
	}
	return p.PublishTo(ctx, to, records, onAck)
}

// summary returns the JSON output.
func (t publishTarget) summary(acked int64) *publishSummary {
	v := &publishSummary{Topic: t.topic, Lanes: t.lanes, Published: acked}
	if len(t.lanes) > 0 {
		v.Lane = &t.lanes[0]
	}
	return v
}

func (t publishTarget) String() string {
	if len(t.lanes) == 0 {
		return t.topic
	}
	return t.topic + "/" + strings.ReplaceAll(notation.List(t.lanes), " ", "")
}
