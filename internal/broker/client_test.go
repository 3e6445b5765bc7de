package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
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
