package testservices

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// Topic creates a topic whose name begins with prefix and is unique, waits until every partition has a
// leader, and deletes it when the test ends.
func Topic(t testing.TB, brokers []string, prefix string, partitions int, config ...kafka.ConfigEntry) string {
	t.Helper()
	name := Unique(prefix)
	client, closeClient := kafkaClient(brokers)
	t.Cleanup(closeClient)

	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
	if err := await(func() error { return led(client, name, partitions) }); err != nil {
		t.Fatalf("topic %s: %v", name, err)
	}
	return name
}

// led returns an error that says why a partition cannot be written yet. Metadata is not sufficient: in it a broker is
// the leader a moment before it acts as one, and it refuses records in between. A request for an offset reaches the
// replica itself.
func led(client *kafka.Client, topic string, partitions int) error {
	asks := make([]kafka.OffsetRequest, partitions)
	for p := range asks {
		asks[p] = kafka.LastOffsetOf(p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: asks}})
	if err != nil {
		return err
	}
	offsets := answer.Topics[topic]
	if len(offsets) != partitions {
		return fmt.Errorf("%d of %d partitions answer", len(offsets), partitions)
	}
	for _, p := range offsets {
		if p.Error != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, p.Error)
		}
	}
	return nil
}

// deleteTopic does not fail the test, which may have killed the broker on purpose.
func deleteTopic(t testing.TB, client *kafka.Client, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}}); err != nil {
		t.Logf("delete topic %s: %v", name, err)
	}
}

// kafkaClient makes a client with its own transport, so that closing it leaves no goroutine behind for goleak to find.
func kafkaClient(brokers []string) (*kafka.Client, func()) {
	transport := &kafka.Transport{DialTimeout: 5 * time.Second, MetadataTTL: time.Second}
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: patience, Transport: transport}
	return client, transport.CloseIdleConnections
}
