package requeue

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	metadataapi "github.com/segmentio/kafka-go/protocol/metadata"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
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

// memory is a transport with a broker in it that takes every record, or does what onProduce says. It does no
// I/O, so that time can be faked around it.
type memory struct {
	topics    map[string]int // partitions
	onProduce func(ctx context.Context, n int) (errorCode int16, err error)

	mu      sync.Mutex
	calls   int
	written map[partition][]kafka.Record
}

func newMemory(prefix string) *memory {
	m := &memory{topics: map[string]int{LaneTopic(prefix): 8, DeadTopic(prefix): 2}, written: make(map[partition][]kafka.Record)}
	for _, d := range DefaultTimers() {
		m.topics[TimerTopic(prefix, d)] = 2
	}
	return m
}

func (m *memory) client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP("memory:1"), Transport: m}
}

func (m *memory) RoundTrip(ctx context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	switch req := req.(type) {
	case *metadataapi.Request:
		return m.metadata(req), nil
	case *produceapi.Request:
		return m.produce(ctx, req)
	}
	return nil, fmt.Errorf("memory: unexpected %T", req)
}

func (m *memory) metadata(req *metadataapi.Request) *metadataapi.Response {
	res := &metadataapi.Response{Brokers: []metadataapi.ResponseBroker{{NodeID: 1, Host: "memory", Port: 1}}}
	for _, name := range req.TopicNames {
		t := metadataapi.ResponseTopic{Name: name}
		for p := range m.topics[name] {
			t.Partitions = append(t.Partitions, metadataapi.ResponsePartition{PartitionIndex: int32(p), LeaderID: 1})
		}
		res.Topics = append(res.Topics, t)
	}
	return res
}

func (m *memory) produce(ctx context.Context, req *produceapi.Request) (*produceapi.Response, error) {
	m.mu.Lock()
	m.calls++
	n := m.calls
	m.mu.Unlock()
	code := int16(0)
	if m.onProduce != nil {
		var err error
		if code, err = m.onProduce(ctx, n); err != nil {
			return nil, err
		}
	}
	res := &produceapi.Response{}
	for _, t := range req.Topics {
		rt := produceapi.ResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, produceapi.ResponsePartition{Partition: p.Partition, ErrorCode: code})
			if code == 0 {
				m.keep(partition{t.Topic, int(p.Partition)}, p.RecordSet.Records)
			}
		}
		res.Topics = append(res.Topics, rt)
	}
	return res, nil
}

func (m *memory) keep(to partition, records kafka.RecordReader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		r, err := records.ReadRecord()
		if err != nil {
			return
		}
		m.written[to] = append(m.written[to], *r)
	}
}

// total is how many records lie in topics whose names contain part.
func (m *memory) total(part string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for to, records := range m.written {
		if strings.Contains(to.topic, part) {
			n += len(records)
		}
	}
	return n
}

// start runs a relay until the test ends.
func start(t testing.TB, opts Options) *Relay {
	t.Helper()
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
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
