package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// event is one record of the topic of the results.
type event struct {
	JobID        string            `json:"job_id"`
	Campaign     string            `json:"campaign"`
	Outcome      string            `json:"outcome"`
	Destination  string            `json:"destination"`
	Keys         map[string]string `json:"keys"`
	Headers      map[string]string `json:"headers"`
	Answer       string            `json:"answer"`
	Reason       string            `json:"reason"`
	Quota        string            `json:"quota"`
	FreeAt       time.Time         `json:"free_at"`
	Attempts     int               `json:"attempts"`
	Status       int               `json:"status"`
	Origin       string            `json:"origin"`
	EnqueuedAt   time.Time         `json:"enqueued_at"`
	FirstReadAt  time.Time         `json:"first_read_at"`
	DispatchedAt time.Time         `json:"dispatched_at"`
	SettledAt    time.Time         `json:"settled_at"`
	Sink         float64           `json:"sink_latency_ms"`
	Total        float64           `json:"total_latency_ms"`
}

// withResults switches the results on in the stack's configuration.
func (s *stack) withResults() {
	s.t.Helper()
	text := readFile(s.t, s.config())
	on := strings.Replace(text, "kafka:    {", "kafka:    {results: true, ", 1) + "\nresults: {headers: [tenant]}\n"
	noError(s.t, os.WriteFile(s.config(), []byte(on), 0o600))
	if out, err := s.try("check"); exitCode(err) != 1 || !strings.Contains(out, s.prefix+"results does not exist: run pacer migrate up") {
		s.t.Errorf("check without the topic of the results: %v\n%s", err, out)
	}
	if out := s.run("migrate", "up"); !strings.Contains(out, "created topic "+s.prefix+"results with 6 partitions") {
		s.t.Errorf("migrate up printed\n%s", out)
	}
	s.await(10*time.Second, "check to find the topic", func() bool { _, err := s.try("check"); return err == nil })
}

// events are those of each job.
func (s *stack) events() map[string][]event {
	s.t.Helper()
	found := map[string][]event{}
	s.each("results", func(_ string, r delivery.Record) {
		var e event
		if err := json.Unmarshal(r.Value, &e); err != nil || e.JobID != string(r.Key) {
			s.t.Fatalf("event %s under the key %q: %v", r.Value, r.Key, err)
		}
		found[e.JobID] = append(found[e.JobID], e)
	})
	return found
}

// TestEverySettledJobHasOneResult: delivered, dead, expired and cancelled jobs, also over a graceful restart.
func TestEverySettledJobHasOneResult(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2, settings: "retry: {max_attempts: 2, initial: 100ms}"})
	s.withResults()
	s.campaign("good", 200)
	s.campaign("bad", 100)
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, status) VALUES ('gone', 100, 'cancelled')`)
	s.receiver.answer = func(a arrival) (int, time.Duration) {
		switch {
		case strings.HasPrefix(a.id, "refused"):
			return http.StatusGone, 0
		case strings.HasPrefix(a.id, "broken"):
			return http.StatusInternalServerError, 0
		}
		return http.StatusAccepted, 0
	}
	s.receiver.says = "{\n \"error\": \"no such user\"}"
	const each = 300
	past := header("pacer-expires-at", "2020-01-01T00:00:00Z")
	var jobs []job
	for i := range each {
		jobs = append(jobs, job{campaign: "good", id: fmt.Sprintf("good-%d", i)})
		if i%30 == 0 {
			jobs = append(jobs,
				job{campaign: "bad", id: fmt.Sprintf("refused-%d", i), headers: []kafka.Header{header("tenant", "acme"), header("other", "x")}},
				job{campaign: "good", id: fmt.Sprintf("late-%d", i), headers: []kafka.Header{past}},
				job{campaign: "gone", id: fmt.Sprintf("gone-%d", i)})
		}
	}
	jobs = append(jobs, job{campaign: "bad", id: "broken"})
	s.publish(jobs)
	d := s.started("one")
	s.await(20*time.Second, "some jobs", func() bool { return s.receiver.count("good") > each/3 })
	d.stop()
	d.launch()
	s.await(30*time.Second, "an event of each job", func() bool { return len(s.events()) >= len(jobs) })
	d.stop()
	s.allOnce("", each)
	s.checkEvents(jobs)
}

// checkEvents compares the only event of each job with what must have become of it.
func (s *stack) checkEvents(jobs []job) {
	s.t.Helper()
	events := s.events()
	if len(events) != len(jobs) {
		s.t.Errorf("events of %d jobs, want %d", len(events), len(jobs))
	}
	for id, list := range events {
		kind, _, _ := strings.Cut(id, "-")
		e := list[0]
		got := fmt.Sprintf("%d %s %s %s %d %d %v %s", len(list), e.Campaign, e.Outcome, e.Reason, e.Attempts, e.Status, e.Headers, e.Answer)
		want := map[string]string{
			"good": "1 good delivered  1 202 map[] ", "refused": `1 bad dead refused 1 410 map[tenant:acme] { "error": "no such user"}`, "late": "1 good expired  0 0 map[] ",
			"gone": "1 gone cancelled  0 0 map[] ", "broken": `1 bad dead attempts_exhausted 2 500 map[] { "error": "no such user"}`,
		}[kind]
		if got != want {
			s.t.Errorf("%s: %s, want %s", id, got, want)
		}
		sent := e.Status != 0
		inOrder := !e.FirstReadAt.IsZero() && !e.SettledAt.Before(e.FirstReadAt) && e.Total >= e.Sink
		if sent != !e.DispatchedAt.IsZero() || sent != (e.Sink > 0) || !inOrder || !strings.HasPrefix(e.Origin, s.ingress+"/") {
			s.t.Errorf("%s: times and origin %+v", id, e)
		}
	}
}

// losesNoResult is the second half of TestKilledBroker: the daemon is killed as well, and comes back.
func (s *stack) losesNoResult(d *daemon, jobs []job) {
	s.t.Helper()
	s.await(60*time.Second, "more jobs", func() bool { n, _ := s.receiver.accepted(""); return n > len(jobs)*3/5 })
	d.kill()
	s.bury()
	d.launch()
	s.await(60*time.Second, "an event of each job", func() bool { return len(s.events()) == len(jobs) })
	d.stop()
	n, duplicates := s.receiver.accepted("")
	again := 0
	for id, list := range s.events() {
		again += len(list) - 1
		if list[0].Outcome != "delivered" {
			s.t.Errorf("%s: %+v", id, list[0])
		}
	}
	s.t.Logf("%d of %d jobs, %d duplicates, %d events more than jobs", n, len(jobs), duplicates, again)
	if n != len(jobs) || d.log.lines("kafka refuses re-enqueued jobs") == 0 {
		s.t.Errorf("%d jobs arrived; %d warnings", n, d.log.lines("kafka refuses re-enqueued jobs"))
	}
}
