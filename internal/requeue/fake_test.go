package requeue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource records what is settled and flushed.
type fakeSource struct {
	name    string
	onFlush func(ctx context.Context) error // called outside the lock
	onEvent func(event string)

	mu      sync.Mutex
	settled map[int64]delivery.Outcome
	twice   int
	flushes int
}

func newSource(name string) *fakeSource {
	return &fakeSource{name: name, settled: make(map[int64]delivery.Outcome)}
}

func (s *fakeSource) Name() string          { return s.name }
func (s *fakeSource) Room(string, int64)    {}
func (s *fakeSource) Release(string, int64) {}

func (s *fakeSource) event(e string) {
	if s.onEvent != nil {
		s.onEvent(e)
	}
}

func (s *fakeSource) Settle(offset int64, outcome delivery.Outcome) {
	s.mu.Lock()
	if _, ok := s.settled[offset]; ok {
		s.twice++
	}
	s.settled[offset] = outcome
	s.mu.Unlock()
	s.event("settle")
}

func (s *fakeSource) Flush(ctx context.Context) error {
	s.mu.Lock()
	s.flushes++
	s.mu.Unlock()
	s.event("flush")
	if s.onFlush != nil {
		return s.onFlush(ctx)
	}
	return nil
}

func (s *fakeSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settled)
}

func (s *fakeSource) flushCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushes
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
		Origin: delivery.Origin{Topic: "pacer.jobs", Partition: 0, Offset: offset}, Source: s, Offset: offset,
	}
}

// Destinations of tests.
var (
	lane  = delivery.Destination{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}
	timer = delivery.Destination{Kind: delivery.ToTimer, Reason: delivery.ReasonRetry}
	dead  = delivery.Destination{Kind: delivery.ToDead, Reason: delivery.ReasonRefused, Detail: "status 410"}
)

// logBook keeps the log lines of a test.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

func (b *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (b *logBook) count(level string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		if strings.Contains(l, "level="+level) {
			n++
		}
	}
	return n
}

// start runs a relay until the test ends.
func start(t testing.TB, opts Options) *Relay {
	t.Helper()
	r := prepare(t, opts)
	run(t, r)
	return r
}

func prepare(t testing.TB, opts Options) *Relay {
	t.Helper()
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
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

// fakeCluster starts an in-process broker and a client of it.
func fakeCluster(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *kafka.Client) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, dial(t, cluster.ListenAddrs())
}

func dial(t testing.TB, brokers []string) *kafka.Client {
	t.Helper()
	transport := &kafka.Transport{MetadataTTL: 500 * time.Millisecond}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}
}

// smallSpec keeps the number of partitions low.
func smallSpec(prefix string, ingress ...string) TopicSpec {
	return TopicSpec{Prefix: prefix, Ingress: ingress, Lanes: 8, TimerPartitions: 2, DeadPartitions: 2}
}

// ensure creates the owned topics.
func ensure(t testing.TB, client *kafka.Client, spec TopicSpec) {
	t.Helper()
	if _, err := EnsureTopics(t.Context(), client, spec); err != nil {
		t.Fatal(err)
	}
}

// readAll returns every record of a topic.
func readAll(t testing.TB, client *kafka.Client, topic string) []Record {
	t.Helper()
	n, err := Partitions(t.Context(), client, topic)
	if err != nil {
		t.Fatal(err)
	}
	var all []Record
	for p := range n {
		err := Scan(t.Context(), client, topic, p, FromStart, func(r Record) error {
			all = append(all, r)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
