package test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/standin"
)

// TestRequestsOfSMEV: 500 requests under five windows, and a daemon that is killed with -9 in the middle of them.
func TestRequestsOfSMEV(t *testing.T) {
	alongside(t, 10*time.Second)
	smevRequests(t, 500, 400, window{80, 500 * time.Millisecond}, window{150, time.Second}, window{280, 2 * time.Second},
		window{400, 3 * time.Second}, window{600, 6 * time.Second})
}

// smevRequests has a daemon send n requests to SMEV itself, kills it with -9 in the middle, and starts it again. The windows are
// those of the registry. Some answers do not come, though the requests are registered; some requests are rejected or refused
// later on.
func smevRequests(t *testing.T, n int, rate float64, windows ...window) {
	acked := ackTimes{at: map[string]time.Time{}}
	o := standin.SMEVOptions{
		Plain: true, Redeliver: 2 * time.Second, Multipart: true, Acked: acked.note,
		Deaf: func(r standin.SMEVRequest, sent int) bool { return sent == 1 && strings.Contains(r.Content, "7</id>") },
		Supplier: func(r standin.SMEVRequest) []standin.SMEVReply {
			switch {
			case strings.Contains(r.Content, "1</id>"):
				return []standin.SMEVReply{{Kind: "RequestRejected", Code: "NO_DATA"}}
			case strings.Contains(r.Content, "2</id>"):
				return []standin.SMEVReply{{Kind: "AsyncProcessingStatus", Code: "SMEV-102"}}
			}
			return []standin.SMEVReply{{Kind: "RequestStatus", Code: "1"}, {Kind: "MessagePrimaryContent", After: 50 * time.Millisecond}}
		},
	}
	far := standin.StartSMEV(t, o)
	s := newStack(t, stackOptions{
		partitions: 3, settings: "retry: {initial: 200ms}",
		sinks: fmt.Sprintf("  mvd: {type: smev, mode: direct, url: %q, timeout: 3s, collect: {interval: 50ms, parallel: 8}}", far.URL),
	})
	var texts []string
	for _, w := range windows {
		texts = append(texts, fmt.Sprintf("%d/%s", w.limit, w.span))
	}
	s.quota("mvd", "closed", texts...)
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('passports', $1, 'mvd')`, rate)
	s.under("mvd", "passports")
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{campaign: "passports", id: fmt.Sprint("p-", i), payload: fmt.Appendf(nil, `<q:Ask xmlns:q="urn://example/1.0"><id>p-%d</id></q:Ask>`, i)}
	}
	s.publish(jobs)
	d := s.start("one")
	s.await(30*time.Second, "a third of the requests", func() bool { return len(far.Requests()) > n/3 })
	d.kill()
	s.bury()
	d.launch()
	s.await(90*time.Second, "all requests, and all responses", func() bool { return len(far.Requests()) >= n && far.Waiting() == 0 })
	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.checkRequests(far, n, windows)
	s.checkResponses(far, acked.at)
}

// ackTimes are when responses were acknowledged.
type ackTimes struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (a *ackTimes) note(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[id] = time.Now()
}

// checkRequests: each job's request is registered once, and no window carries more than its limit.
func (s *stack) checkRequests(far *standin.SMEV, n int, windows []window) {
	s.t.Helper()
	times, again := map[string]int{}, 0
	var list []arrival
	for _, r := range far.Requests() {
		times[r.Content]++
		list = append(list, arrival{at: r.At.Sub(s.receiver.began).Microseconds()})
	}
	for content, k := range times {
		if k != 1 {
			s.t.Errorf("%s is registered %d times", content, k)
		}
	}
	if len(times) != n {
		s.t.Errorf("%d requests of %d jobs", len(times), n)
	}
	for _, k := range far.Sent() {
		again += k - 1
	}
	if again < 5 {
		s.t.Errorf("%d requests were sent again: the answers that did not come have not been asked for", again)
	}
	sortByTime(list)
	for _, w := range windows {
		s.withinWindow(list, w.limit, w.span)
	}
	s.t.Logf("%d requests within %.1f s, %d were sent again", len(list), float64(list[len(list)-1].at-list[0].at)/1e6, again)
}

// checkResponses: each is acknowledged once, and was written to the topic before.
func (s *stack) checkResponses(far *standin.SMEV, acked map[string]time.Time) {
	s.t.Helper()
	stored, kinds := map[string]time.Time{}, map[string]int{}
	records := 0
	s.each("smev.responses", func(_ string, r delivery.Record) {
		records++
		id := r.Header("smev-message-id")
		if at, ok := stored[id]; !ok || r.Time.Before(at) {
			stored[id] = r.Time
		}
		if kinds[r.Header("smev-kind")]++; string(r.Key) != r.Header("smev-original-message-id") {
			s.t.Errorf("%s has the key %s", id, r.Key)
		}
	})
	for id, k := range far.Acks() {
		at, ok := stored[id]
		switch {
		case k != 1:
			s.t.Errorf("%s was acknowledged %d times", id, k)
		case !ok || at.After(acked[id]):
			s.t.Errorf("%s was acknowledged at %s and stored at %s", id, acked[id], at)
		}
	}
	if len(stored) != len(far.Acks()) || len(kinds) != 4 {
		s.t.Errorf("%d responses are stored, %d were acknowledged; %v", len(stored), len(far.Acks()), kinds)
	}
	s.t.Logf("%d responses in %d records: %v", len(stored), records, kinds)
}
