package harness

import (
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// topicTimeout bounds the making and the removal of one topic.
const topicTimeout = 20 * time.Second

// Topic creates a topic whose name begins with prefix and is nobody else's, waits until every partition has a
// leader, and deletes it when the test ends.
func Topic(t testing.TB, brokers []string, prefix string, partitions int, config ...kafka.ConfigEntry) string {
	t.Helper()
	name := Unique(prefix)
	client, closeClient := kafkaClient(brokers)
	t.Cleanup(closeClient)

	ctx, cancel := context.WithTimeout(context.Background(), topicTimeout)
	defer cancel()
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: name, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: config,
	}}})
	if err == nil {
		err = answer.Errors[name]
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() { deleteTopic(t, client, name) })
	awaitLeaders(ctx, t, client, name, partitions)
	return name
}

// awaitLeaders returns once every partition can be written. Metadata would not tell: a broker names itself the
// leader in them a moment before it is one, and refuses records in between. Asking for an offset reaches the
// replica itself.
func awaitLeaders(ctx context.Context, t testing.TB, client *kafka.Client, topic string, partitions int) {
	t.Helper()
	asks := make([]kafka.OffsetRequest, partitions)
	for p := range asks {
		asks[p] = kafka.LastOffsetOf(p)
	}
	for {
		answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: asks},
		})
		if err == nil && led(answer.Topics[topic], partitions) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("topic %s has no leaders after %s (last error: %v)", topic, topicTimeout, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func led(offsets []kafka.PartitionOffsets, partitions int) bool {
	for _, p := range offsets {
		if p.Error != nil {
			return false
		}
	}
	return len(offsets) == partitions
}

// deleteTopic does not fail the test: it may have killed the broker on purpose.
func deleteTopic(t testing.TB, client *kafka.Client, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), topicTimeout)
	defer cancel()
	if _, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}}); err != nil {
		t.Logf("delete topic %s: %v", name, err)
	}
}

// kafkaClient makes a client with a transport of its own, so that closing it leaves no goroutine behind for
// goleak to find.
func kafkaClient(brokers []string) (*kafka.Client, func()) {
	transport := &kafka.Transport{DialTimeout: 5 * time.Second, MetadataTTL: time.Second}
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: topicTimeout, Transport: transport}
	return client, transport.CloseIdleConnections
}
