package requeue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/brokertest"
)

// withResults has a relay write results.
func withResults(o *Options) { o.Topics.Results = true }

// refusing has the broker refuse with an error until the switch is off.
func (r *rig) refusing(code kafka.Error, err error) *atomic.Bool {
	var down atomic.Bool
	down.Store(true)
	r.m.OnProduce = func(context.Context, int) (int16, error) {
		if down.Load() {
			return int16(code), err
		}
		return 0, nil
	}
	return &down
}

// open returns how many jobs wait for their event.
func (r *rig) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.box.results
}

func TestEventsWaitForARefusingBroker(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		down := r.refusing(kafka.NotEnoughReplicas, nil)
		s := newSource("pacer.jobs/0")
		const n = 3 * eventsBatch
		for i := range int64(n) {
			r.report(s.job(i, "spring"), delivery.OutcomeDelivered)
		}
		time.Sleep(15 * time.Second)
		if s.count() != 0 || !r.refusesResults() || r.log.Count("WARN") != 1 {
			t.Errorf("%d settled, healthy %v, %d warnings", s.count(), !r.refusesResults(), r.log.Count("WARN"))
		}
		r.shows(map[string]float64{"pacer_requeue_queued": 0, "pacer_results_waiting": n, "pacer_requeue_outage": 0, "pacer_results_outage": 1})
		began := time.Now()
		if err := r.Admit(t.Context(), 20*time.Second); err != nil || time.Since(began) != 20*time.Second {
			t.Errorf("jobs were admitted after %s, %v", time.Since(began), err)
		}
		time.AfterFunc(5*time.Second, func() { down.Store(false) })
		began = time.Now()
		if err := r.Admit(t.Context(), time.Minute); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("jobs were admitted after %s, %v", time.Since(began), err)
		}
		time.Sleep(time.Second)
		r.settled(n, s)
		r.logged(1, 1)
		down.Store(true)
		r.report(s.job(n, "spring"), delivery.OutcomeRequeued)
		if _, ok := s.outcome(n); !ok || r.open() != 0 {
			t.Error("a job that is only moved on waits for an event")
		}
	}, withResults)
}

// TestEventsOfAPartitionThatHasLeft are given up: the jobs stay open for its next owner, and intake waits for them no longer.
func TestEventsOfAPartitionThatHasLeft(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		down := r.refusing(0, errors.New("connection refused"))
		s := newSource("pacer.jobs/0")
		for i := range int64(10) {
			r.report(s.job(i, "spring"), delivery.OutcomeDead)
		}
		time.Sleep(3 * time.Second)
		if r.open() != 10 {
			t.Errorf("%d open", r.open())
		}
		s.moves(false, true)
		r.Revoke()
		time.Sleep(time.Minute)
		if began := time.Now(); r.Admit(t.Context(), time.Minute) != nil || time.Since(began) > time.Second {
			t.Errorf("intake waited %s for events that were given up", time.Since(began))
		}
		down.Store(false)
		other := newSource("pacer.jobs/1")
		r.report(other.job(20, "spring"), delivery.OutcomeDelivered)
		time.Sleep(10 * time.Second)
		if r.settled(1, s, other); r.open() != 0 { // the new one only
			t.Errorf("%d open", r.open())
		}
		if err := r.Admit(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
	}, withResults)
}

func TestEventsWaitForTheirTopic(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		r.report(newSource("pacer.jobs/0").job(1, "spring"), delivery.OutcomeDelivered)
		time.Sleep(time.Minute)
		r.logged(1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Admit(ctx, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("admitted with %v", err)
		}
	}, withResults, func(o *Options) { o.Topics.Prefix = "others." })
}

// TestAnEventThatIsTooLargeHoldsNothingUp: it is written without its variable parts, or given up where the topic does not take that either.
func TestAnEventThatIsTooLargeHoldsNothingUp(t *testing.T) {
	for name, c := range map[string]struct{ takes, events int }{"a long one": {1000, 1}, "any": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			onMemory(t, func(t *testing.T, r *rig) {
				r.m.Refuse = func(_ string, _, size int) (int16, bool) {
					if size > c.takes {
						return int16(kafka.MessageSizeTooLarge), false
					}
					return 0, true
				}
				s := newSource("pacer.jobs/0")
				job := s.job(0, "spring")
				for i := range 100 {
					job.Headers = append(job.Headers, delivery.Header{Key: fmt.Sprint(delivery.HeaderKey, i), Value: bytes.Repeat([]byte{1}, 256)})
				}
				job.Call = delivery.Call{At: time.Now(), Provider: &delivery.Provider{Answer: strings.Repeat("x", delivery.MaxAnswer)}}
				r.report(job, delivery.OutcomeDead)
				time.Sleep(time.Minute)
				began := time.Now()
				if err := r.Admit(t.Context(), 20*time.Second); err != nil || time.Since(began) > 0 {
					t.Errorf("each offer waits %s, %v", time.Since(began), err)
				}
				if s.count() != 1 || s.twice != 0 || r.m.Total("results") != c.events || r.log.Count("ERROR") != 1 {
					t.Errorf("%d settled, %d events; logged %q", s.count(), r.m.Total("results"), r.log.Lines(""))
				}
				written := float64(c.events)
				r.shows(map[string]float64{
					"pacer_results_written_total": written, "pacer_results_shortened_total": written, "pacer_results_waiting": 0,
				})
			}, withResults)
		})
	}
}

func TestResultsOfEveryOutcome(t *testing.T) {
	t.Parallel()
	client := brokertest.Cluster(t, kfake.SeedTopics(4, "t.results"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "30000"}))
	r := newRig(t, withResults, func(o *Options) { o.Client, o.ResultHeaders = client, []string{"tenant", "none"} })
	run(t, r.Relay)
	s := newSource("pacer.jobs/0")
	const n = 2000
	first := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for i := range int64(n) {
		job := s.job(i, "spring")
		job.Attempt, job.FirstRead, job.Reason = 2, first, "refused"
		job.Headers = []delivery.Header{
			{Key: "tenant", Value: []byte("old")}, {Key: "other", Value: []byte("x")}, {Key: "tenant", Value: []byte("a\n\xff" + strings.Repeat("é", 200))},
		}
		if i%2 == 0 {
			job.Call = delivery.Call{
				At: first.Add(time.Second), Took: 1500, Status: 410,
				Provider: &delivery.Provider{Code: "GONE", MessageID: "m-1", GoneSince: first.Add(-time.Hour), Answer: `{"gone":true}`},
			}
		}
		r.report(job, []delivery.Outcome{delivery.OutcomeDelivered, delivery.OutcomeDead, delivery.OutcomeExpired, delivery.OutcomeCancelled}[i%4])
	}
	for until := time.Now().Add(30 * time.Second); s.count() < n && time.Now().Before(until); time.Sleep(time.Millisecond) { //nolint:revive // it waits
	}
	if s.count() != n {
		t.Fatalf("%d settled", s.count())
	}
	seen, partitions := make(map[string]map[string]any), make(map[int]int)
	for _, rec := range brokertest.ReadAll(t, client, "t.results") {
		var e map[string]any
		if err := json.Unmarshal(rec.Value, &e); err != nil || string(rec.Key) != e["job_id"] {
			t.Fatalf("key %q of %s: %v", rec.Key, rec.Value, err)
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
	want := `map[answer:{"gone":true} ` + "attempts:2 campaign:spring dispatched_at:2026-12-01T12:00:01Z first_read_at:2026-12-01T12:00:00Z " +
		"gone_since:2026-12-01T11:00:00Z headers:map[tenant:a ?" + strings.Repeat("é", 126) + "] job_id:spring-0 origin:pacer.jobs/0/0 " +
		"outcome:delivered provider_code:GONE provider_message_id:m-1 sink_latency_ms:1.5 status:410]"
	if got := fmt.Sprint(delivered); got != want {
		t.Errorf("event %s\nwant  %s", got, want)
	}
	if dead["outcome"] != "dead" || dead["reason"] != "refused" || dead["status"] != nil || dead["dispatched_at"] != nil {
		t.Errorf("event of a dead letter that was not sent: %v", dead)
	}
}

// TestAnEventOfAnyAnswer: an answer may name a time beyond the years that JSON has. The event leaves it out.
func TestAnEventOfAnyAnswer(t *testing.T) {
	t.Parallel()
	j := newSource("pacer.jobs/0").job(0, "spring")
	j.Call = delivery.Call{At: time.Now(), Provider: &delivery.Provider{Code: "Unregistered", GoneSince: time.UnixMilli(time.Now().UnixMicro())}}
	var e map[string]any
	if err := json.Unmarshal((&result{outcome: delivery.OutcomeRejected, at: time.Now()}).encode(j), &e); err != nil || e["gone_since"] != nil {
		t.Errorf("%v, %v", e, err)
	}
}

// TestOnePartitionOfResultsHoldsUpNoIntake: whether the events that it refuses may have been written or not, they go to another partition.
func TestOnePartitionOfResultsHoldsUpNoIntake(t *testing.T) {
	t.Parallel()
	for _, code := range []kafka.Error{kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend, kafka.RequestTimedOut} {
		t.Run(code.Title(), func(t *testing.T) {
			onMemory(t, func(t *testing.T, r *rig) {
				r.refuse("t.results/2", code)
				s := newSource("pacer.jobs/0")
				for i := range int64(100) {
					r.report(s.job(i, "spring"), delivery.OutcomeDelivered)
				}
				time.Sleep(time.Minute)
				began := time.Now()
				if err := r.Admit(t.Context(), 20*time.Second); err != nil || time.Since(began) > 0 || s.count() != 100 || s.twice != 0 {
					t.Errorf("each offer waits %s, %v; %d of 100 jobs are settled", time.Since(began), err, s.count())
				}
			}, withResults)
		})
	}
}

// report settles a job whose results are written.
func (r *rig) report(job *delivery.Job, outcome delivery.Outcome) {
	r.Receipt(job.Receipt).Settle(job, outcome)
}
