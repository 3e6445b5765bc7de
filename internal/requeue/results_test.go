package requeue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/delivery"
)

// startResults runs a writer of results until the test ends.
func startResults(t testing.TB, opts ResultsOptions) *Results {
	t.Helper()
	r, err := NewResults(opts)
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

// memoryResults is a writer on a broker in memory.
func memoryResults(t testing.TB, m *memory, book *logBook) *Results {
	m.topics[ResultsTopic("t.")] = 3
	return startResults(t, ResultsOptions{Client: m.client(), Prefix: "t.", Logger: book.logger()})
}

func TestAJobIsSettledOnceItsEventIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := newMemory("t."), &logBook{}
		acked := make(chan struct{})
		m.onProduce = func(context.Context, int) (int16, error) { <-acked; return 0, nil }
		r := memoryResults(t, m, book)
		s := newSource("pacer.jobs/0")
		for i := range int64(100) {
			job := s.job(i, "spring")
			job.Report = r.Report
			job.Settle(delivery.OutcomeDelivered)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if s.count() != 0 || r.open() != 100 {
			t.Errorf("%d settled before the broker has their events, %d open", s.count(), r.open())
		}
		close(acked)
		if left := r.Drain(t.Context()); left != 0 || s.count() != 100 || m.total("results") != 100 || s.twice != 0 {
			t.Errorf("%d settled, %d events, %d left", s.count(), m.total("results"), left)
		}
		moved := s.job(200, "spring")
		moved.Report = r.Report
		moved.Settle(delivery.OutcomeRequeued)
		if _, ok := s.outcome(200); !ok || r.open() != 0 {
			t.Error("a job that was only moved on was reported")
		}
	})
}

func TestEventsWaitForARefusingBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := newMemory("t."), &logBook{}
		var down atomic.Bool
		down.Store(true)
		m.onProduce = func(context.Context, int) (int16, error) {
			if down.Load() {
				return int16(kafka.NotEnoughReplicas), nil
			}
			return 0, nil
		}
		r := memoryResults(t, m, book)
		s := newSource("pacer.jobs/0")
		const n = 3 * maxRound
		for i := range int64(n) {
			r.Report(s.job(i, "spring"), delivery.OutcomeDelivered)
		}
		time.Sleep(time.Minute)
		if s.count() != 0 || r.Healthy() || book.count("WARN") != 1 {
			t.Errorf("%d settled, healthy %v, %d warnings", s.count(), r.Healthy(), book.count("WARN"))
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
		if left := r.Drain(t.Context()); left != 0 || s.count() != n || m.total("results") != n || book.count("INFO") != 1 {
			t.Errorf("%d settled, %d events, %d left, %d lines of recovery", s.count(), m.total("results"), left, book.count("INFO"))
		}
	})
}

func TestADrainThatRunsOutOfTimeLeavesJobsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := newMemory("t."), &logBook{}
		var down atomic.Bool
		down.Store(true)
		m.onProduce = func(context.Context, int) (int16, error) {
			if down.Load() {
				return 0, errors.New("connection refused")
			}
			return 0, nil
		}
		r := memoryResults(t, m, book)
		s := newSource("pacer.jobs/0")
		for i := range int64(10) {
			r.Report(s.job(i, "spring"), delivery.OutcomeDead)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if left := r.Drain(ctx); left != 10 {
			t.Errorf("%d left", left)
		}
		time.Sleep(time.Minute)
		if began := time.Now(); r.Admit(t.Context(), time.Minute) != nil || time.Since(began) > DefaultMaxBackoff {
			t.Errorf("intake waited %s for events that were given up", time.Since(began))
		}
		down.Store(false)
		r.Report(s.job(20, "spring"), delivery.OutcomeDelivered)
		time.Sleep(10 * time.Second)
		if s.count() != 1 || m.total("results") != 1 || r.open() != 0 {
			t.Errorf("%d settled, %d events, %d open; want the new one only", s.count(), m.total("results"), r.open())
		}
		if err := r.Admit(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
	})
}

func TestEventsWaitForTheirTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, book := newMemory("t."), &logBook{}
		r := startResults(t, ResultsOptions{Client: m.client(), Prefix: "t.", Logger: book.logger()})
		time.Sleep(time.Minute)
		if r.Ready() || r.Healthy() || book.count("WARN") != 1 || !strings.Contains(book.lines[0], "migrate up") {
			t.Errorf("ready %v, log %q", r.Ready(), book.lines)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Admit(ctx, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("admitted with %v", err)
		}
	})
}

func TestResultsOfEveryOutcome(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(4, "t.results"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "30000"}))
	r := startResults(t, ResultsOptions{Client: client, Prefix: "t."})
	s := newSource("pacer.jobs/0")
	const n = 2000
	first := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for i := range int64(n) {
		job := s.job(i, "spring")
		job.Attempt, job.FirstRead, job.Reason = 2, first, "refused"
		if i%2 == 0 {
			job.Call = &delivery.Call{At: first.Add(time.Second), Took: 1500 * time.Microsecond, Status: 410}
		}
		r.Report(job, []delivery.Outcome{delivery.OutcomeDelivered, delivery.OutcomeDead, delivery.OutcomeExpired, delivery.OutcomeCancelled}[i%4])
	}
	if left := r.Drain(t.Context()); left != 0 || s.count() != n {
		t.Fatalf("%d settled, %d left", s.count(), left)
	}
	seen := make(map[string]map[string]any)
	partitions := make(map[int]int)
	for _, rec := range readAll(t, client, "t.results") {
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
	if len(seen) != n || len(partitions) != 4 {
		t.Errorf("%d jobs with an event, in %v", len(seen), partitions)
	}
	delivered, dead := seen["spring-0"], seen["spring-1"]
	delete(delivered, "settled_at")
	delete(delivered, "total_latency_ms")
	want := "map[attempts:2 campaign:spring dispatched_at:2026-12-01T12:00:01Z first_read_at:2026-12-01T12:00:00Z job_id:spring-0 " +
		"origin:pacer.jobs/0/0 outcome:delivered sink_latency_ms:1.5 status:410]"
	if got := fmt.Sprint(delivered); got != want {
		t.Errorf("event %s\nwant  %s", got, want)
	}
	if dead["outcome"] != "dead" || dead["reason"] != "refused" || dead["status"] != nil || dead["dispatched_at"] != nil {
		t.Errorf("event of a dead letter that was not sent: %v", dead)
	}
}

func TestADeadLetterIsReportedWithItsReason(t *testing.T) {
	_, client := fakeCluster(t)
	spec := smallSpec("t.")
	spec.Results = true
	ensure(t, client, spec)
	results := startResults(t, ResultsOptions{Client: client, Prefix: "t."})
	relay := start(t, Options{Client: client, Prefix: "t.", Lanes: 8})
	s := newSource("pacer.jobs/0")
	for i, to := range []delivery.Destination{dead, timer, lane, {Kind: delivery.ToDead, Reason: delivery.ReasonExpired}} {
		job := s.job(int64(i), "spring")
		job.Report = results.Report
		relay.Put(job, to)
	}
	eventually(t, "settled", func() bool { return s.count() == 4 })
	var got []string
	for _, rec := range readAll(t, client, "t.results") {
		var e result
		if err := json.Unmarshal(rec.Value, &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.JobID+" "+e.Outcome+" "+e.Reason)
	}
	if all := strings.Join(got, ","); len(got) != 2 || !strings.Contains(all, "spring-0 dead refused") || !strings.Contains(all, "spring-3 expired ") {
		t.Errorf("events %q", got)
	}
}

// BenchmarkResults writes the events of settled jobs.
func BenchmarkResults(b *testing.B) {
	m := newMemory("t.")
	m.topics["t.results"] = 6
	r := startResults(b, ResultsOptions{Client: m.client(), Prefix: "t."})
	s := newSource("pacer.jobs/0")
	b.ReportAllocs()
	for i := range b.N {
		job := s.job(int64(i), "spring")
		job.Call = &delivery.Call{At: time.Now(), Took: time.Millisecond, Status: 200}
		r.Report(job, delivery.OutcomeDelivered)
	}
	r.Drain(b.Context())
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
