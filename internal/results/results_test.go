package results

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// startResults runs a writer of results until the test ends.
func startResults(t testing.TB, opts Options) *Results {
	t.Helper()
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	r := New(opts)
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

// memoryResults is a writer on a broker in memory.
func memoryResults(t testing.TB, m *kafkatest.Memory, book *kafkatest.LogBook) *Results {
	return startResults(t, Options{Client: memoryClient(t, m), Topic: "t.results", Logger: book.Logger()})
}

func TestAJobIsSettledOnceItsEventIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := kafkatest.NewMemory(map[string]int{"t.results": 3}), &kafkatest.LogBook{}
		acked := make(chan struct{})
		m.OnProduce = func(context.Context, int) (int16, error) { <-acked; return 0, nil }
		r := memoryResults(t, m, book)
		s := newSource()
		for i := range int64(100) {
			job := s.job(i, "spring")
			job.Receipt = r.Receipt(job.Receipt)
			job.Settle(delivery.OutcomeDelivered)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if s.count() != 0 || r.open() != 100 {
			t.Errorf("%d settled before the broker has their events, %d open", s.count(), r.open())
		}
		close(acked)
		if left := r.Drain(t.Context()); left != 0 || s.count() != 100 || m.Total("results") != 100 || s.twice != 0 {
			t.Errorf("%d settled, %d events, %d left", s.count(), m.Total("results"), left)
		}
		moved := s.job(200, "spring")
		moved.Receipt = r.Receipt(moved.Receipt)
		moved.Settle(delivery.OutcomeRequeued)
		if _, ok := s.outcome(200); !ok || r.open() != 0 {
			t.Error("a job that was only moved on was reported")
		}
	})
}

func TestEventsWaitForARefusingBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := kafkatest.NewMemory(map[string]int{"t.results": 3}), &kafkatest.LogBook{}
		var down atomic.Bool
		down.Store(true)
		m.OnProduce = func(context.Context, int) (int16, error) {
			if down.Load() {
				return int16(kafka.NotEnoughReplicas), nil
			}
			return 0, nil
		}
		r := memoryResults(t, m, book)
		s := newSource()
		const n = 3 * maxRound
		for i := range int64(n) {
			report(r, s.job(i, "spring"), delivery.OutcomeDelivered)
		}
		time.Sleep(time.Minute)
		if s.count() != 0 || healthy(r) || book.Count("WARN") != 1 {
			t.Errorf("%d settled, healthy %v, %d warnings", s.count(), healthy(r), book.Count("WARN"))
		}
		began := time.Now()
		if err := r.Admit(t.Context(), 20*time.Second); err != nil || time.Since(began) != 20*time.Second {
			t.Errorf("jobs were admitted after %s, %v", time.Since(began), err)
		}
		time.AfterFunc(5*time.Second, func() { down.Store(false) })
		began = time.Now()
		if err := r.Admit(t.Context(), time.Minute); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("jobs were admitted after %s, %v", time.Since(began), err)
		}
		if left := r.Drain(t.Context()); left != 0 || s.count() != n || m.Total("results") != n || book.Count("INFO") != 1 {
			t.Errorf("%d settled, %d events, %d left, %d lines of recovery", s.count(), m.Total("results"), left, book.Count("INFO"))
		}
	})
}

func TestADrainThatRunsOutOfTimeLeavesJobsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := kafkatest.NewMemory(map[string]int{"t.results": 3}), &kafkatest.LogBook{}
		var down atomic.Bool
		down.Store(true)
		m.OnProduce = func(context.Context, int) (int16, error) {
			if down.Load() {
				return 0, errors.New("connection refused")
			}
			return 0, nil
		}
		r := memoryResults(t, m, book)
		s := newSource()
		for i := range int64(10) {
			report(r, s.job(i, "spring"), delivery.OutcomeDead)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if left := r.Drain(ctx); left != 10 {
			t.Errorf("%d left", left)
		}
		time.Sleep(time.Minute)
		if began := time.Now(); r.Admit(t.Context(), time.Minute) != nil || time.Since(began) > maxBackoff {
			t.Errorf("intake waited %s for events that were given up", time.Since(began))
		}
		down.Store(false)
		report(r, s.job(20, "spring"), delivery.OutcomeDelivered)
		time.Sleep(10 * time.Second)
		if s.count() != 1 || m.Total("results") != 1 || r.open() != 0 {
			t.Errorf("%d settled, %d events, %d open; want the new one only", s.count(), m.Total("results"), r.open())
		}
		if err := r.Admit(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
	})
}

func TestEventsWaitForTheirTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := kafkatest.NewMemory(nil), &kafkatest.LogBook{}
		r := startResults(t, Options{Client: memoryClient(t, m), Topic: "t.results", Logger: book.Logger()})
		time.Sleep(time.Minute)
		if r.Ready() || healthy(r) || book.Count("WARN") != 1 || !strings.Contains(book.Lines("")[0], "migrate up") {
			t.Errorf("ready %v, log %q", r.Ready(), book.Lines(""))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Admit(ctx, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("admitted with %v", err)
		}
	})
}

func TestResultsOfEveryOutcome(t *testing.T) {
	t.Parallel()
	client := fakeCluster(t, kfake.SeedTopics(4, "t.results"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "30000"}))
	r := startResults(t, Options{Client: client, Topic: "t.results"})
	s := newSource()
	const n = 2000
	first := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for i := range int64(n) {
		job := s.job(i, "spring")
		job.Attempt, job.FirstRead, job.Reason = 2, first, "refused"
		if i%2 == 0 {
			job.Call = delivery.Call{
				At: first.Add(time.Second), Took: 1500, Status: 410,
				Provider: &delivery.Provider{Code: "GONE", MessageID: "m-1", GoneSince: first.Add(-time.Hour)},
			}
		}
		report(r, job, []delivery.Outcome{delivery.OutcomeDelivered, delivery.OutcomeDead, delivery.OutcomeExpired, delivery.OutcomeCancelled}[i%4])
	}
	if left := r.Drain(t.Context()); left != 0 || s.count() != n {
		t.Fatalf("%d settled, %d left", s.count(), left)
	}
	seen := make(map[string]map[string]any)
	partitions := make(map[int]int)
	for p := range 4 {
		for rec, err := range client.Scan(t.Context(), broker.Partition{Topic: "t.results", ID: p}, 0) {
			if err != nil {
				t.Fatal(err)
			}
			var e map[string]any
			if err := json.Unmarshal(rec.Value, &e); err != nil {
				t.Fatal(err)
			}
			if string(rec.Key) != e["job_id"] {
				t.Fatalf("key %q of %s", rec.Key, rec.Value)
			}
			seen[string(rec.Key)] = e
			partitions[rec.Partition]++
		}
	}
	if len(seen) != n || len(partitions) != 4 {
		t.Errorf("%d jobs with an event, in %v", len(seen), partitions)
	}
	delivered, dead := seen["spring-0"], seen["spring-1"]
	delete(delivered, "settled_at")
	delete(delivered, "total_latency_ms")
	want := "map[attempts:2 campaign:spring dispatched_at:2026-12-01T12:00:01Z first_read_at:2026-12-01T12:00:00Z " +
		"gone_since:2026-12-01T11:00:00Z job_id:spring-0 origin:pacer.jobs/0/0 outcome:delivered provider_code:GONE " +
		"provider_message_id:m-1 sink_latency_ms:1.5 status:410]"
	if got := fmt.Sprint(delivered); got != want {
		t.Errorf("event %s\nwant  %s", got, want)
	}
	if dead["outcome"] != "dead" || dead["reason"] != "refused" || dead["status"] != nil || dead["dispatched_at"] != nil {
		t.Errorf("event of a dead letter that was not sent: %v", dead)
	}
}

// BenchmarkResults writes the events of settled jobs.
func BenchmarkResults(b *testing.B) {
	m := kafkatest.NewMemory(map[string]int{"t.results": 3})
	r := startResults(b, Options{Client: memoryClient(b, m), Topic: "t.results"})
	s := newSource()
	b.ReportAllocs()
	for i := range b.N {
		job := s.job(int64(i), "spring")
		job.Call = delivery.Call{At: time.Now(), Took: 1000, Status: 200}
		report(r, job, delivery.OutcomeDelivered)
	}
	r.Drain(b.Context())
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// report settles a job whose results are written.
func report(r *Results, job *delivery.Job, outcome delivery.Outcome) {
	r.Receipt(job.Receipt).Settle(job, outcome)
}

// source records what is settled.
type source struct {
	delivery.Source

	mu      sync.Mutex
	settled map[int64]delivery.Outcome
	twice   int
}

func newSource() *source { return &source{settled: make(map[int64]delivery.Outcome)} }

func (*source) Name() string { return "pacer.jobs/0" }

func (s *source) Settle(job *delivery.Job, outcome delivery.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.settled[job.Offset]; ok {
		s.twice++
	}
	s.settled[job.Offset] = outcome
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settled)
}

func (s *source) outcome(offset int64) (delivery.Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.settled[offset]
	return o, ok
}

// job makes a plain job of the source.
func (s *source) job(offset int64, campaign string) *delivery.Job {
	return &delivery.Job{
		ID: fmt.Sprintf("%s-%d", campaign, offset), Campaign: campaign, Weight: 1, Payload: []byte("payload"),
		History: delivery.History{Origin: delivery.Origin{Topic: "pacer.jobs", Offset: offset}},
		Reading: delivery.Reading{Source: s, Offset: offset}, Receipt: s,
	}
}

func dial(t testing.TB, opts broker.Options) *broker.Client {
	t.Helper()
	client, err := broker.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func fakeCluster(t testing.TB, opts ...kfake.Opt) *broker.Client {
	t.Helper()
	return dial(t, broker.Options{Brokers: kafkatest.Cluster(t, opts...).ListenAddrs()})
}

func memoryClient(t testing.TB, m *kafkatest.Memory) *broker.Client {
	return dial(t, broker.Options{Brokers: []string{"memory:1"}, Wrap: m.Wrap})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// healthy reports whether the broker accepts events.
func healthy(r *Results) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up == nil
}
