package test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/consumer"
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
	seen := map[string]bool{}
	for _, a := range r.all {
		if a.status/100 == 2 {
			seen[a.id] = true
		}
	}
	return seen
}

// topics are the topics of this test with their partitions.
func (s *stack) topics(ctx context.Context) map[string][]int {
	s.t.Helper()
	meta, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
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
func (s *stack) eachOpen(f func(topic string, r requeue.Record)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	topics := s.topics(ctx)
	commits := s.commits(ctx, topics)
	for topic, partitions := range topics {
		lane, dead := topic == requeue.LaneTopic(s.prefix), topic == requeue.DeadTopic(s.prefix)
		for _, p := range partitions {
			at := commits[topic][p]
			open, err := consumer.Unsettled(lane, max(at.CommittedOffset, 0), at.Metadata)
			if err != nil {
				s.t.Fatalf("commit of %s/%d: %v", topic, p, err)
			}
			err = requeue.Scan(ctx, s.client, topic, p, requeue.FromStart, func(r requeue.Record) error {
				if dead || open(r.Header("pacer-campaign"), r.Offset) {
					f(topic, r)
				}
				return nil
			})
			if err != nil {
				s.t.Fatalf("scan %s/%d: %v", topic, p, err)
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

func TestTooMany(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   []int64 // milliseconds
		most int
		want int
	}{
		{"none", nil, 1, 0},
		{"as many as allowed", []int64{0, 400, 999}, 3, 0},
		{"one more within the span", []int64{0, 400, 999}, 2, 1},
		{"a span later", []int64{0, 400, 1000}, 2, 0},
		{"each of those that come too soon", []int64{0, 1, 2, 3, 4}, 2, 3},
		{"at one instant", []int64{5, 5}, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var list []arrival
			for _, at := range tc.at {
				list = append(list, arrival{at: at * 1000})
			}
			if got := tooMany(list, tc.most, time.Second); got != tc.want {
				t.Errorf("%d too many, want %d", got, tc.want)
			}
		})
	}
}
