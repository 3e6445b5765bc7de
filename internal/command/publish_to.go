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
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/requeue"
)

// publishTarget is the destination of `publish`: an ingress topic, or the lanes of the campaign.
type publishTarget struct {
	topic string
	lanes []int // none: all partitions of the topic, in turn
}

// publishTo returns the destination of the jobs. With --direct, the campaign is pinned to lanes as if it had
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
	return publishTarget{topic: topic}, nil
}

// publishLane pins the campaign to as many of the existing lanes as its rate needs.
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
	rate, err := c.Rate(ctx, campaign)
	if err != nil {
		return publishTarget{}, err
	}
	pins, err := c.Pin(ctx, map[string]int{campaign: delivery.Stripes(rate, 0, 0, lanes)}, lanes, nil)
	if err != nil {
		return publishTarget{}, err
	}
	return publishTarget{topic: topic, lanes: pins[campaign]}, nil
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
