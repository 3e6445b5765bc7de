package test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// acceptedIDs tells which jobs were accepted.
func (r *receiver) acceptedIDs() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.tallyOf("").accepted)
}

// topics are the topics of this test with their partitions.
func (s *stack) topics(ctx context.Context) map[string][]int {
	s.t.Helper()
	meta, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	noError(s.t, err)
	found := map[string][]int{}
	for _, topic := range meta.Topics {
		if topic.Name != s.ingress && !strings.HasPrefix(topic.Name, s.prefix) {
			continue
		}
		for _, p := range topic.Partitions {
			found[topic.Name] = append(found[topic.Name], p.ID)
		}
	}
	return found
}

// eachOpen calls f for every dead letter and for every record in ingress, lanes and timers that the group's commits leave
// open.
func (s *stack) eachOpen(f func(topic string, r delivery.Record)) {
	s.t.Helper()
	ctx := s.soon()
	s.eachOpenOf(ctx, s.topics(ctx), f)
}

// eachOpenOf is eachOpen for some topics.
func (s *stack) eachOpenOf(ctx context.Context, topics map[string][]int, f func(topic string, r delivery.Record)) {
	s.t.Helper()
	commits := s.commits(ctx, topics)
	for topic, partitions := range topics {
		lane, dead := topic == requeue.LaneTopic(s.prefix), topic == requeue.DeadTopic(s.prefix)
		for _, p := range partitions {
			at := commits[topic][p]
			open, err := offset.Unsettled(lane, max(at.CommittedOffset, 0), at.Metadata)
			if err != nil {
				s.t.Fatalf("commit of %s/%d: %v", topic, p, err)
			}
			for r, err := range s.cluster.Scan(ctx, broker.Partition{Topic: topic, ID: p}, 0) {
				noError(s.t, err)
				if dead || open(r.Header("pacer-campaign"), r.Offset) {
					f(topic, r)
				}
			}
		}
	}
}

// commits are the group's commits; a partition without one is missing. A broker that was restarted has left the client
// with connections that fail once.
func (s *stack) commits(ctx context.Context, topics map[string][]int) map[string]map[int]kafka.OffsetFetchPartition {
	s.t.Helper()
	var answer *kafka.OffsetFetchResponse
	s.await(10*time.Second, "the offsets of the group", func() (ok bool) {
		var err error
		answer, err = s.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: s.ingress, Topics: topics})
		return err == nil && answer.Error == nil
	})
	commits := map[string]map[int]kafka.OffsetFetchPartition{}
	for topic, partitions := range answer.Topics {
		commits[topic] = map[int]kafka.OffsetFetchPartition{}
		for _, p := range partitions {
			if p.CommittedOffset >= 0 {
				commits[topic][p.Partition] = p
			}
		}
	}
	return commits
}

// offsets are the sums of where the partitions of topics begin and end. It is an error if one does not answer.
func (s *stack) offsets(ctx context.Context, topics map[string][]int) (begins, ends int64, err error) {
	asks := map[string][]kafka.OffsetRequest{}
	for topic, partitions := range topics {
		for _, p := range partitions {
			asks[topic] = append(asks[topic], kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
		}
	}
	if len(asks) == 0 {
		return 0, 0, nil // the topic is not there
	}
	answer, err := s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: asks})
	if err != nil {
		return 0, 0, err
	}
	for topic, partitions := range topics {
		if list := answer.Topics[topic]; len(list) != len(partitions) {
			return 0, 0, fmt.Errorf("offsets of %d of %d partitions of %s", len(list), len(partitions), topic)
		}
		for _, p := range answer.Topics[topic] {
			if p.Error != nil {
				return 0, 0, fmt.Errorf("offsets of %s/%d: %w", topic, p.Partition, p.Error)
			}
			begins, ends = begins+p.FirstOffset, ends+p.LastOffset
		}
	}
	return begins, ends, nil
}

// kept is where the partitions of those topics of the test begin and end that are like this.
func (s *stack) kept(like func(topic string) bool) (begins, ends int64) {
	s.t.Helper()
	ctx := s.soon()
	topics := s.topics(ctx)
	maps.DeleteFunc(topics, func(topic string, _ []int) bool { return !like(topic) })
	s.await(10*time.Second, "offsets", func() bool { // of a broker that has just been started again, too
		var err error
		begins, ends, err = s.offsets(ctx, topics)
		return err == nil
	})
	return begins, ends
}

// written is how many records were ever written to a topic.
func (s *stack) written(topic string) int64 {
	s.t.Helper()
	_, ends := s.kept(is(topic))
	return ends
}
