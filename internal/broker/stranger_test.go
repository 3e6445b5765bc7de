package broker

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// clusters are two with the same topics: ours, and another one.
func clusters(t *testing.T, opts ...kfake.Opt) (ours, other *kfake.Cluster) {
	t.Helper()
	opts = append(opts, kfake.SeedTopics(1, "jobs"))
	return kafkatest.Cluster(t, append(opts, kfake.ClusterID("ours"))...), kafkatest.Cluster(t, append(opts, kfake.ClusterID("theirs"))...)
}

// requests counts what a cluster is asked besides what a connection begins with.
func requests(c *kfake.Cluster) *atomic.Int64 {
	var n atomic.Int64
	for key := range int16(60) {
		if key != 3 && key != 17 && key != 18 && key != 36 { // metadata, SASL, versions
			c.ControlKey(key, func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				n.Add(1)
				return nil, nil, false
			})
		}
	}
	return &n
}

// A seed of another cluster is passed over: nothing is read from it or written to it, in any order of the seeds.
func TestASeedOfAnotherClusterIsPassedOver(t *testing.T) {
	t.Parallel()
	for name, sasl := range map[string]bool{"plain": false, "with SASL": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts []kfake.Opt
			var security func() Security
			if sasl {
				opts = append(opts, kfake.EnableSASL(), kfake.Superuser("PLAIN", "pacer", "secret"))
				security = func() Security { return Security{SASL: SASL{"plain", "pacer", "secret"}} }
			}
			ours, other := clusters(t, opts...)
			asked, log := requests(other), &kafkatest.LogBook{}
			for range 10 {
				client := dial(t, Options{
					Brokers: append(other.ListenAddrs(), ours.ListenAddrs()...), Cluster: func() string { return "ours" }, Logger: log.Logger(), Security: security,
				})
				at := Partition{Topic: "jobs"}
				kafkatest.Eventually(t, "a record is written", func() bool {
					_, err := NewProducer(ProducerOptions{Client: client}).PublishTo(t.Context(), []Partition{at}, All([]delivery.Record{{Value: []byte("x")}}), nil)
					if err != nil && (!errors.Is(err, ErrOtherCluster) || !NotWritten(err)) {
						t.Fatal(err)
					}
					return err == nil
				})
				if id, err := client.Cluster(t.Context()); err != nil || id != "ours" {
					t.Errorf("the cluster is %s, %v", id, err)
				}
			}
			if n := asked.Load(); n != 0 {
				t.Errorf("the other cluster got %d requests", n)
			}
			lines := strings.Join(log.Lines("ERROR"), "")
			if !strings.Contains(lines, "its id is theirs, and pacer is set up for ours") || !strings.Contains(lines, "pacer migrate up --cluster theirs") {
				t.Errorf("logged %s", lines)
			}
		})
	}
}

// Connections that are open follow the cluster with their next request.
func TestOpenConnectionsFollowTheCluster(t *testing.T) {
	t.Parallel()
	_, other := clusters(t)
	var want atomic.Pointer[string]
	pin := func(id string) { want.Store(&id) }
	pin("")
	client := dial(t, Options{Brokers: other.ListenAddrs(), Cluster: func() string { return *want.Load() }})
	if id, err := client.Cluster(t.Context()); err != nil || id != "theirs" || client.Ping(t.Context()) != nil {
		t.Fatalf("%s, %v", id, err)
	}
	pin("ours")
	asked := requests(other)
	if _, err := client.Offsets(t.Context(), Latest, Partition{Topic: "jobs"}); err == nil || asked.Load() > 0 {
		t.Errorf("the other cluster is asked for offsets: %v", err)
	}
	pin("theirs")
	kafkatest.Eventually(t, "the cluster is used again", func() bool {
		_, err := client.Offsets(t.Context(), Latest, Partition{Topic: "jobs"})
		return err == nil
	})
}

// A broker whose address another cluster has taken over: its connections are made anew, and get nothing.
func TestABrokerThatIsReplaced(t *testing.T) {
	t.Parallel()
	ours, _ := clusters(t)
	address := ours.ListenAddrs()[0]
	client := dial(t, Options{Brokers: []string{address}, Cluster: func() string { return "ours" }})
	read := func() error {
		_, err := client.Offsets(t.Context(), Latest, Partition{Topic: "jobs"})
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	ours.Close()
	other := kafkatest.Cluster(t, kfake.ClusterID("theirs"), kfake.SeedTopics(1, "jobs"), kfake.Ports(port))
	asked := requests(other)
	kafkatest.Eventually(t, "the other cluster is noticed", func() bool {
		err := read()
		if err == nil {
			t.Fatal("it was read from")
		}
		return errors.Is(err, ErrOtherCluster)
	})
	if n := asked.Load(); n > 0 {
		t.Errorf("the other cluster got %d requests", n)
	}
}
