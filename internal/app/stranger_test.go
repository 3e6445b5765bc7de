package app

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// ask returns a client of a cluster that publishes jobs, and reads what became of them.
func ask(t *testing.T, cluster *kfake.Cluster) *broker.Client {
	t.Helper()
	client, err := broker.New(broker.Options{Brokers: cluster.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

const jobsEach = 20

// publishBroken writes jobs that become dead letters at once.
func publishBroken(t *testing.T, client *broker.Client) {
	t.Helper()
	jobs := make([]delivery.Record, jobsEach)
	for i := range jobs {
		jobs[i].Value = []byte("{broken")
	}
	if _, err := broker.NewProducer(broker.ProducerOptions{Client: client}).Publish(t.Context(), testTopic, broker.All(jobs), nil); err != nil {
		t.Fatal(err)
	}
}

func deadLetters(t *testing.T, client *broker.Client) int64 {
	t.Helper()
	at := broker.Partition{Topic: requeue.DeadTopic("pacer.")}
	ends, err := client.Offsets(t.Context(), broker.Latest, at)
	if err != nil {
		t.Fatal(err)
	}
	return ends[at]
}

// A daemon uses the cluster of its catalog alone. It passes over the seeds of another one that has the same topics, and it stops at once
// when the catalog names another cluster than the one that it works with.
func TestAStrangerIsNeverServed(t *testing.T) {
	t.Parallel()
	parts, log := testParts(t)
	parts.Config.ShutdownTimeout = 2 * time.Second
	names := parts.Topics.Names()
	ours := kafkatest.Cluster(t, kfake.ClusterID("ours"), kfake.SeedTopics(1, names...))
	theirs := kafkatest.Cluster(t, kfake.ClusterID("theirs"), kfake.SeedTopics(1, names...))
	here, there := ask(t, ours), ask(t, theirs)
	publishBroken(t, here)
	publishBroken(t, there)
	var asked atomic.Int64
	for _, key := range []kmsg.Key{kmsg.Fetch, kmsg.Produce, kmsg.JoinGroup, kmsg.Heartbeat, kmsg.OffsetCommit} {
		theirs.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			theirs.KeepControl()
			asked.Add(1)
			return nil, nil, false
		})
	}

	catalog := installed(&parts, delivery.Installation{Cluster: "ours"})
	parts.Config.Kafka.Brokers = append(theirs.ListenAddrs(), ours.ListenAddrs()...)
	if err := parts.OpenKafka(); err != nil {
		t.Fatal(err)
	}
	_, stop := start(t, parts)
	kafkatest.Eventually(t, "the jobs of ours are dead letters", func() bool { return deadLetters(t, here) == jobsEach })
	if n := asked.Load(); n > 0 || deadLetters(t, there) > 0 {
		t.Errorf("the other cluster got %d requests", n)
	}

	catalog.installation.Store(&delivery.Installation{Cluster: "neither"})
	kafkatest.Eventually(t, "the change is noticed", func() bool { return strings.Contains(log.String(), "its id is ours, and pacer is set up for neither") })
	publishBroken(t, here)
	time.Sleep(time.Second)
	if n := deadLetters(t, here); n != jobsEach {
		t.Errorf("%d jobs were read after the change", n-jobsEach)
	}
	stop()
	if want := "run pacer migrate up --cluster ours"; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%q is not logged:\n%s", want, log.String())
	}
}
