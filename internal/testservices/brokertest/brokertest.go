// Package brokertest contains clients of brokers for tests.
package brokertest

import (
	"cmp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// Dial makes a client, which is closed with the test.
func Dial(t testing.TB, o broker.Options) *broker.Client {
	t.Helper()
	o.MetadataTTL = cmp.Or(o.MetadataTTL, 500*time.Millisecond)
	client, err := broker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Cluster starts a broker in this process, and makes a client of it.
func Cluster(t testing.TB, opts ...kfake.Opt) *broker.Client {
	t.Helper()
	return Dial(t, broker.Options{Brokers: kafkatest.Cluster(t, opts...).ListenAddrs()})
}

// ReadAll returns every record of a topic.
func ReadAll(t testing.TB, client *broker.Client, topic string) (all []delivery.Record) {
	t.Helper()
	partitions, err := client.PartitionsOf(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range partitions {
		for r, err := range client.Scan(t.Context(), at, 0) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}
