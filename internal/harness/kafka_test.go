package harness

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

func TestFreshKafkaKeepsItsDataWhenKilled(t *testing.T) {
	broker := FreshKafka(t)
	topic := Topic(t, broker.Brokers, "harness.kill", 1)
	client, closeClient := kafkaClient(broker.Brokers)
	defer closeClient()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("x"))}),
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		t.Fatal(err)
	}

	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", broker.Brokers[0]); err == nil {
		_ = conn.Close()
		t.Error("a killed broker answered")
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	// The client's pooled connections are stale, and the replica may still be opening its log.
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}},
		})
		if err == nil && led(offsets.Topics[topic], 1) {
			if last := offsets.Topics[topic][0].LastOffset; last != 1 {
				t.Fatalf("%d records after the restart, want 1", last)
			}
			return
		}
	}
	t.Fatal("the broker did not come back within a minute")
}

func TestProxiedKafkaAnswersThroughItsProxyOnly(t *testing.T) {
	broker, proxy := ProxiedKafka(t)
	topic := Topic(t, broker.Brokers, "harness.proxied", 1)
	end := func() error {
		client, closeClient := kafkaClient([]string{proxy.Addr})
		defer closeClient()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}},
		})
		return err
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	client, closeClient := kafkaClient([]string{proxy.Addr})
	defer closeClient()
	meta, err := client.Metadata(t.Context(), &kafka.MetadataRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range meta.Brokers {
		if at := net.JoinHostPort(b.Host, strconv.Itoa(b.Port)); at != proxy.Addr {
			t.Errorf("behind the proxy the broker is at %s, want %s", at, proxy.Addr)
		}
	}
	proxy.Down()
	if err := end(); err == nil {
		t.Error("the broker answered past its proxy")
	}
	proxy.Heal()
	if err := end(); err != nil {
		t.Errorf("healed: %v", err)
	}
}
