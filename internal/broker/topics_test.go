package broker

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// slowBroker makes topics at once, and leads them after a while.
type slowBroker struct {
	kafka.RoundTripper
	leadsAt time.Time
	looks   int
}

// RoundTrip implements kafka.RoundTripper.
func (b *slowBroker) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	switch req := req.(type) {
	case *createtopics.Request:
		return &createtopics.Response{}, nil
	case *listoffsets.Request:
		b.looks++
		code := int16(0)
		if time.Now().Before(b.leadsAt) {
			code = int16(kafka.Unknown)
		}
		answer := listoffsets.Response{}
		for _, t := range req.Topics {
			topic := listoffsets.ResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				topic.Partitions = append(topic.Partitions, listoffsets.ResponsePartition{Partition: p.Partition, ErrorCode: code})
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return &answer, nil
	}
	return b.RoundTripper.RoundTrip(ctx, addr, req)
}

// TestNewTopicsMayTakeLong: on a slow machine a broker that has just started leads new topics after a minute. A waiting caller gets the
// reason once, and does not keep the broker busy by asking. In the end it is an error.
func TestNewTopicsMayTakeLong(t *testing.T) {
	for after, fails := range map[time.Duration]bool{100 * time.Millisecond: false, 90 * time.Second: false, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			b := &slowBroker{leadsAt: time.Now().Add(after)}
			client := dial(t, Options{Brokers: []string{"memory:1"}, Wrap: func(kafka.RoundTripper) kafka.RoundTripper {
				b.RoundTripper = kafkatest.NewMemory(map[string]int{"new": 4})
				return b
			}})
			var told []string
			_, err := client.CreateTopics(t.Context(), []Topic{{Name: "new", Partitions: 4}}, func(err error) { told = append(told, err.Error()) })
			if (err != nil) != fails {
				t.Errorf("leaders after %s: %v", after, err)
			}
			if slow := after > topicsSlow; slow != (len(told) == 1) || slow && !strings.Contains(told[0], "new/") {
				t.Errorf("leaders after %s: told %q", after, told)
			}
			if most := 10 + int(topicsAppear/leadersEvery); b.looks > most {
				t.Errorf("leaders after %s: looked %d times", after, b.looks)
			}
		})
	}
}
