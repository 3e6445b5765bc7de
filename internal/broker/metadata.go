package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	layoutTimeout = 5 * time.Second
	layoutTTL     = time.Second
)

// noLeader is the leader of a partition without one.
const noLeader = -1

// Partitions returns the number of partitions of the topic; the error is ErrNoTopic if it does not exist.
func (c *Client) Partitions(ctx context.Context, topic string) (int, error) {
	leaders, err := c.Leaders(ctx, topic)
	return len(leaders), err
}

// PartitionsOf returns all partitions of topics, in order; the error is ErrNoTopic if one does not exist.
func (c *Client) PartitionsOf(ctx context.Context, topics ...string) (all []Partition, err error) {
	for _, topic := range topics {
		n, err := c.Partitions(ctx, topic)
		if err != nil {
			return nil, err
		}
		for p := range n {
			all = append(all, Partition{Topic: topic, ID: p})
		}
	}
	return all, nil
}

// Leaders returns the number of the leader of each partition of the topic, negative where there is none, at most layoutTTL (and the
// transport's metadata TTL) old. The error is ErrNoTopic if the topic does not exist, and that of the broker if it may not be described. The
// result is shared, and not to be changed.
func (c *Client) Leaders(ctx context.Context, topic string) ([]int, error) {
	c.mu.Lock()
	if time.Since(c.readAt) > layoutTTL {
		clear(c.layout)
		c.readAt = time.Now()
	}
	leaders := c.layout[topic]
	c.mu.Unlock()
	if leaders != nil {
		return leaders, nil
	}

	ctx, cancel := context.WithTimeout(ctx, layoutTimeout)
	defer cancel()
	answer, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("read the layout of topic %s: %w", topic, unnamed(err))
	}
	if len(answer.Topics) != 1 {
		return nil, fmt.Errorf("topic %s: %w", topic, ErrNoTopic)
	}
	partitions, refusal := answer.Topics[0].Partitions, answer.Topics[0].Error
	switch {
	case len(partitions) > 0:
	case refusal == nil || errors.Is(refusal, kafka.UnknownTopicOrPartition):
		return nil, fmt.Errorf("topic %s: %w", topic, ErrNoTopic)
	default:
		return nil, fmt.Errorf("topic %s: %w", topic, Explained(refusal))
	}
	leaders = make([]int, len(partitions))
	for _, p := range partitions {
		if p.ID < 0 || p.ID >= len(leaders) {
			continue
		}
		leaders[p.ID] = p.Leader.ID
		if p.Leader.Port == 0 {
			leaders[p.ID] = noLeader // a request of its own, so that it fails alone
		}
	}
	c.mu.Lock()
	c.layout[topic] = leaders
	c.mu.Unlock()
	return leaders, nil
}

// byLeader groups partitions by their leader. unknown is called for those whose leader is not known.
func (c *Client) byLeader(ctx context.Context, partitions iter.Seq[Partition], unknown func(Partition, error)) map[int][]Partition {
	groups := map[int][]Partition{}
	for at := range partitions {
		leader, err := c.leader(ctx, at)
		if err != nil {
			unknown(at, err)
			continue
		}
		groups[leader] = append(groups[leader], at)
	}
	return groups
}

// leader returns the broker that leads a partition, noLeader if there is none or it is not known.
func (c *Client) leader(ctx context.Context, at Partition) (int, error) {
	leaders, err := c.Leaders(ctx, at.Topic)
	if err == nil && at.ID >= len(leaders) {
		err = fmt.Errorf("topic %s has no partition %d: %w", at.Topic, at.ID, kafka.UnknownTopicOrPartition)
	}
	if err != nil {
		return noLeader, err
	}
	return leaders[at.ID], nil
}

// forget makes the next call read the layout again: after a refusal the leader may have moved.
func (c *Client) forget() {
	c.mu.Lock()
	c.readAt = time.Time{}
	c.mu.Unlock()
}

// Cluster returns the id of the cluster, "" where the brokers know none.
func (c *Client) Cluster(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil {
		return "", fmt.Errorf("read the id of the cluster: %w", err)
	}
	return answer.ClusterID, nil
}

// Ping asks a broker something that only the broker can answer. On a cluster's layout, kafka-go answers from memory once it has reached
// the cluster, even long after the last broker has died.
func (c *Client) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.kafka.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err != nil {
		return fmt.Errorf("ask a broker: %w", unnamed(err))
	}
	return nil
}

// HashPartition maps a key to one of n partitions, the same on every daemon: FNV-1a, 64 bits.
func HashPartition(key string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails, as documented
	return int(h.Sum64() % uint64(n))
}
