package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
)

// Identify asks any broker for the ids of topics, and for their numbers of partitions; with no name, of all. A topic made anew has another id than
// the one before it. Names of topics that do not exist, or that the user may not describe, are left out. For a moment after a topic was made anew,
// the answer may be the id of the topic before it.
func (c *Client) Identify(ctx context.Context, topics ...string) (ids map[string]delivery.TopicID, counts map[string]int, err error) {
	return c.identify(ctx, noLeader, topics...)
}

// IdentityOf asks the leader of a partition for the id of its topic. A broker that serves the log of a topic does
// not take its name for a topic before it.
func (c *Client) IdentityOf(ctx context.Context, at Partition) (delivery.TopicID, error) {
	leader, err := c.leader(ctx, at)
	if err != nil && !errors.Is(err, ErrNoTopic) {
		return delivery.TopicID{}, err
	}
	found, _, err := c.identify(ctx, leader, at.Topic)
	id, ok := found[at.Topic]
	if err == nil && !ok {
		err = fmt.Errorf("read the id of topic %s: %w", at.Topic, ErrNoTopic)
	}
	return id, err
}

func (c *Client) identify(ctx context.Context, broker int, topics ...string) (ids map[string]delivery.TopicID, counts map[string]int, err error) {
	answer, err := c.metadata(ctx, broker, kmsg.NewPtrMetadataRequest(), topics)
	if err != nil {
		return nil, nil, fmt.Errorf("read topics: %w", err)
	}
	ids, counts = map[string]delivery.TopicID{}, map[string]int{}
	for _, t := range answer.Topics {
		if t.Topic != nil && t.ErrorCode == 0 {
			ids[*t.Topic], counts[*t.Topic] = delivery.NewTopicID(t.TopicID), len(t.Partitions)
		}
	}
	return ids, counts, nil
}

// metadata asks a broker, or any, for topics; for none: for all.
func (c *Client) metadata(ctx context.Context, broker int, request *kmsg.MetadataRequest, topics []string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, name := range topics {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	answer, err := exchanged[*kmsg.MetadataResponse](ctx, c, broker, request)
	if err != nil && c.old(ctx) {
		err = errNoIDs
	}
	return answer, err
}

var errNoIDs = errors.New("the broker knows no ids of topics; pacer needs Kafka 2.8 or later")

// old reports whether a broker answers that it knows no ids of topics.
func (c *Client) old(ctx context.Context) bool {
	answer, err := c.kafka.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	return err == nil && slices.ContainsFunc(answer.ApiKeys, func(k kafka.ApiVersionsResponseApiKey) bool {
		return k.ApiKey == int(protocol.Metadata) && k.MaxVersion < firstWithIDs
	})
}
