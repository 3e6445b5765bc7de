package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/testservices/brokertest"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// The watchdog takes an offer that does not return for a stuck handler: while results are refused, offers must return
// well before that.
func TestOffersReturnBeforeTheWatchdogMinds(t *testing.T) {
	t.Parallel()
	for watchdog, want := range map[time.Duration]time.Duration{15 * time.Second: 7500 * time.Millisecond, 2 * time.Minute: admitWithin} {
		parts, _ := testParts(t)
		parts.Topics.Results, parts.Config.Watchdog = true, watchdog
		d, err := NewDaemon(parts)
		if err != nil {
			t.Fatal(err)
		}
		if h := d.newIntake(nil); h.results == nil || h.patience != want {
			t.Errorf("watchdog %s: offers wait for %s, want %s", watchdog, h.patience, want)
		}
	}
}

// settled keeps the outcomes of jobs, by offset.
type settled struct {
	delivery.Source

	mu       sync.Mutex
	outcomes map[int64]delivery.Outcome
}

func (*settled) Name() string { return "pacer.jobs/0" }

func (*settled) Revoked() (leaving, left bool) { return false, false }

func (s *settled) Settle(job *delivery.Job, outcome delivery.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[job.Offset] = outcome
}

func (s *settled) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outcomes)
}

// A job that the relay has written as a dead letter is reported with its reason, one that was moved on not at all.
func TestADeadLetterIsReportedWithItsReason(t *testing.T) {
	t.Parallel()
	client := brokertest.Cluster(t)
	spec := requeue.TopicSpec{Prefix: "t.", Lanes: 8, Results: true}
	if _, err := requeue.EnsureTopics(t.Context(), client, spec, nil); err != nil {
		t.Fatal(err)
	}
	relay := requeue.New(requeue.Options{Client: client, Topics: spec})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s := &settled{outcomes: map[int64]delivery.Outcome{}}
	for i, to := range []delivery.Reroute{
		{Kind: delivery.ToDead, Reason: delivery.ReasonRefused}, {Kind: delivery.ToTimer, Reason: delivery.ReasonRetry},
		{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}, {Kind: delivery.ToDead, Reason: delivery.ReasonExpired},
	} {
		relay.Put(&delivery.Job{
			ID: fmt.Sprint("spring-", i), Campaign: "spring", Weight: 1,
			Reading: delivery.Reading{Source: s, Offset: int64(i)}, Receipt: relay.Receipt(s),
		}, to)
	}
	kafkatest.Eventually(t, "settled", func() bool { return s.count() == 4 })
	var got []string
	for _, r := range brokertest.ReadAll(t, client, "t.results") {
		var e struct {
			JobID   string `json:"job_id"`
			Outcome string `json:"outcome"`
			Reason  string `json:"reason"`
		}
		if err := json.Unmarshal(r.Value, &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.JobID+" "+e.Outcome+" "+e.Reason)
	}
	if all := strings.Join(got, ","); len(got) != 2 || !strings.Contains(all, "spring-0 dead refused") || !strings.Contains(all, "spring-3 expired ") {
		t.Errorf("events %q", got)
	}
}
