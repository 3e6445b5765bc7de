package broker

import (
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t testing.TB, opts Options) *Client {
	t.Helper()
	opts.MetadataTTL = 500 * time.Millisecond
	client, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func fakeCluster(t testing.TB, opts ...kfake.Opt) *Client {
	t.Helper()
	return dial(t, Options{Brokers: kafkatest.Cluster(t, opts...).ListenAddrs()})
}

func memoryClient(t testing.TB, m *kafkatest.Memory) *Client {
	return dial(t, Options{Brokers: []string{"memory:1"}, Wrap: m.Wrap})
}

// onBrokers runs a test against a real broker, and against one in this process.
func onBrokers(t *testing.T, test func(t *testing.T, client *Client)) {
	for name, brokers := range map[string]func(t *testing.T) []string{
		"real":       func(t *testing.T) []string { return testservices.Kafka(t) },
		"in process": func(t *testing.T) []string { return kafkatest.Cluster(t).ListenAddrs() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, dial(t, Options{Brokers: brokers(t)}))
		})
	}
}

// counting counts the requests of a kind.
func counting(cluster *kfake.Cluster, key kmsg.Key) *atomic.Int64 {
	var n atomic.Int64
	cluster.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return &n
}

// publish writes records to a topic, and returns how many were acknowledged.
func (c *Client) publish(t testing.TB, topic string, records iter.Seq2[delivery.Record, error]) (acked int64, err error) {
	return NewProducer(ProducerOptions{Client: c}).Publish(t.Context(), topic, records, nil)
}

func readAll(t testing.TB, client *Client, topic string) (all []delivery.Record) {
	t.Helper()
	n, err := client.Partitions(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for p := range n {
		for r, err := range client.Scan(t.Context(), Partition{topic, p}, 0) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}

// TestPingMissesADeadBroker: the layout of a cluster is remembered when its last broker has died, and Ping is not.
func TestPingMissesADeadBroker(t *testing.T) {
	cluster := kafkatest.Cluster(t)
	client := dial(t, Options{Brokers: cluster.ListenAddrs()})
	if err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.Close()
	if err := client.Ping(t.Context()); err == nil {
		t.Error("a broker that is gone has answered")
	}
}
