package requeue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource records what is settled.
type fakeSource struct {
	name    string
	onEvent func(event string)

	mu      sync.Mutex
	settled map[int64]delivery.Outcome
	twice   int
	revoked bool
	left    bool
	dropped int
}

func (s *fakeSource) Revoked() (leaving, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked, s.left
}

func (*fakeSource) Place() delivery.Place { return delivery.FromIngress }

func (*fakeSource) GrantCapacity(string, int64) {}

func (*fakeSource) Release(string, int64) {}

func (s *fakeSource) Drop(int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped++
}

func newSource(name string) *fakeSource {
	return &fakeSource{name: name, settled: make(map[int64]delivery.Outcome)}
}

func (s *fakeSource) Name() string { return s.name }

func (s *fakeSource) event(e string) {
	if s.onEvent != nil {
		s.onEvent(e)
	}
}

func (s *fakeSource) Settle(job *delivery.Job, outcome delivery.Outcome) {
	s.mu.Lock()
	if _, ok := s.settled[job.Offset]; ok {
		s.twice++
	}
	s.settled[job.Offset] = outcome
	s.mu.Unlock()
	s.event("settle")
}

func (s *fakeSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settled)
}

func (s *fakeSource) outcome(offset int64) (delivery.Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.settled[offset]
	return o, ok
}

// job makes a plain job of the source.
func (s *fakeSource) job(offset int64, campaign string) *delivery.Job {
	return &delivery.Job{
		ID: fmt.Sprintf("%s-%d", campaign, offset), Campaign: campaign, Weight: 1, Payload: []byte("payload"),
		History: delivery.History{Origin: delivery.Origin{Topic: "pacer.jobs", Partition: 0, Offset: offset}},
		Reading: delivery.Reading{Source: s, Offset: offset}, Receipt: s,
	}
}

// Destinations of tests.
var (
	lane  = delivery.Reroute{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}
	timer = delivery.Reroute{Kind: delivery.ToTimer, Reason: delivery.ReasonRetry}
	dead  = delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonRefused, Detail: "status 410"}
)

// start runs a relay until the test ends.
func start(t testing.TB, opts Options) *Relay {
	t.Helper()
	r := prepare(t, opts)
	run(t, r)
	return r
}

func prepare(t testing.TB, opts Options) *Relay {
	t.Helper()
	return New(opts)
}

func run(t testing.TB, r *Relay) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// outage reports whether a relay knows of something that refuses.
func outage(r *Relay) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.trouble.since.IsZero()
}

// queued returns how many jobs wait to be written.
func queued(r *Relay) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.box.queued + r.box.waiting() + r.box.large()
}

// fakeCluster starts an in-process broker and a client of it.
func fakeCluster(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *broker.Client) {
	t.Helper()
	cluster := kafkatest.Cluster(t, opts...)
	return cluster, dial(t, broker.Options{Brokers: cluster.ListenAddrs()})
}

func dial(t testing.TB, opts broker.Options) *broker.Client {
	t.Helper()
	opts.MetadataTTL = 500 * time.Millisecond
	client, err := broker.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// newMemory has the topics of a relay.
func newMemory(prefix string) *kafkatest.Memory {
	topics := map[string]int{LaneTopic(prefix): 8, DeadTopic(prefix): 2}
	for _, d := range DefaultTimers() {
		topics[TimerTopic(prefix, d)] = 2
	}
	return kafkatest.NewMemory(topics)
}

func memoryClient(t testing.TB, m *kafkatest.Memory) *broker.Client {
	return dial(t, broker.Options{Brokers: []string{"memory:1"}, Wrap: m.Wrap})
}

// smallSpec keeps the number of partitions low.
func smallSpec(prefix string, ingress ...string) TopicSpec {
	return TopicSpec{Prefix: prefix, Ingress: ingress, Lanes: 8, TimerPartitions: 2, DeadPartitions: 2}
}

// ensure creates the owned topics.
func ensure(t testing.TB, client *broker.Client, spec TopicSpec) {
	t.Helper()
	if _, err := EnsureTopics(t.Context(), client, spec, nil); err != nil {
		t.Fatal(err)
	}
}

// readAll returns every record of a topic.
func readAll(t testing.TB, client *broker.Client, topic string) []delivery.Record {
	t.Helper()
	n, err := client.Partitions(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var all []delivery.Record
	for p := range n {
		for r, err := range client.Scan(t.Context(), broker.Partition{Topic: topic, ID: p}, 0) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}
