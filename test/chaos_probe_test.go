package test

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// metric is the sum of all series of a name on the daemon's /metrics.
func (d *daemon) metric(name string) (sum float64) {
	d.s.t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	r, err := client.Get("http://" + d.listen + "/metrics")
	if err != nil {
		d.s.t.Fatalf("metrics of %s: %v", d.name, err)
	}
	defer func() { _ = r.Body.Close() }()
	lines := bufio.NewReader(r.Body)
	for {
		line, err := lines.ReadString('\n')
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			value, _ := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
			sum += value
		}
		if err == io.EOF {
			return sum
		}
		if err != nil {
			d.s.t.Fatalf("metrics of %s: %v", d.name, err)
		}
	}
}

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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
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

// written is how many records were ever written to a topic.
func (s *stack) written(topic string) (n int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var asks []kafka.OffsetRequest
	for _, p := range s.topics(ctx)[topic] {
		asks = append(asks, kafka.LastOffsetOf(p))
	}
	answer, err := s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: asks}})
	if err != nil {
		s.t.Fatalf("end of %s: %v", topic, err)
	}
	for _, p := range answer.Topics[topic] {
		n += p.LastOffset
	}
	return n
}
