package test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestRequestsOfSMEV: 500 requests under five windows, and a daemon that is killed with -9 in the middle of them.
func TestRequestsOfSMEV(t *testing.T) {
	t.Parallel()
	r := smevRun{n: 500, rate: 400, daemons: 1, windows: []window{
		{80, 500 * time.Millisecond}, {150, time.Second}, {280, 2 * time.Second}, {400, 3 * time.Second}, {600, 6 * time.Second},
	}}
	r.run(t, smevItself(t))
}

// smevRun is how many requests are sent, and within what. The windows are those of the registry.
type smevRun struct {
	n, daemons int
	rate       float64
	windows    []window
}

// smevEnd is where requests go. Some answers do not come, though the requests are registered; some requests are rejected or refused
// later on.
type smevEnd struct {
	settings   string // of the sink
	registered func() []smevRequest
	sent       func() map[string]int // how often each request was sent, by its id
	over       func(s *stack, n int) bool
	check      func(s *stack, n int)
	again      int // at least as many are sent again
}

// smevRequest is a request that was registered.
type smevRequest struct {
	content string
	at      time.Time
}

func unheard(content string, sent int) bool { return sent == 1 && strings.Contains(content, "7</id>") }

func supplied(content string) []sinktest.SMEVReply {
	switch {
	case strings.Contains(content, "1</id>"):
		return []sinktest.SMEVReply{{Kind: "RequestRejected", Code: "NO_DATA"}}
	case strings.Contains(content, "2</id>"):
		return []sinktest.SMEVReply{{Kind: "AsyncProcessingStatus", Code: "SMEV-102"}}
	}
	return []sinktest.SMEVReply{{Kind: "RequestStatus", Code: "1"}, {Kind: "MessagePrimaryContent", After: 50 * time.Millisecond}}
}

// smevItself is SMEV, with its queue of responses.
func smevItself(t *testing.T) smevEnd {
	acked := ackTimes{at: map[string]time.Time{}}
	far := sinktest.StartSMEV(t, sinktest.SMEVOptions{
		Plain: true, Redeliver: 2 * time.Second, Multipart: true, Acked: acked.note,
		Deaf:     func(r sinktest.SMEVRequest, sent int) bool { return unheard(r.Content, sent) },
		Supplier: func(r sinktest.SMEVRequest) []sinktest.SMEVReply { return supplied(r.Content) },
	})
	return smevEnd{
		settings: fmt.Sprintf("{type: smev, mode: direct, url: %q, timeout: 3s, collect: {interval: 50ms, parallel: 8}}", far.URL),
		registered: func() (list []smevRequest) {
			for _, r := range far.Requests() {
				list = append(list, smevRequest{r.Content, r.At})
			}
			return list
		},
		sent:  far.Sent,
		over:  func(*stack, int) bool { return far.Waiting() == 0 },
		check: func(s *stack, _ int) { s.checkResponses(far, acked.at) },
		again: 5,
	}
}

// smevAdapter is the operator's adapter, which is asked for each response.
func smevAdapter(t *testing.T) smevEnd {
	far := sinktest.StartAdapter(t, sinktest.AdapterOptions{
		Plain:    true,
		Deaf:     func(r sinktest.AdapterRequest, sent int) bool { return unheard(r.Content, sent) },
		Supplier: func(r sinktest.AdapterRequest) []sinktest.SMEVReply { return supplied(r.Content) },
	})
	return smevEnd{
		settings: fmt.Sprintf("{type: smev, url: %q, it_system: %s, timeout: 3s, poll: {every: 1s, max: 4s, per_second: 500}}", far.URL, far.ItSystem),
		registered: func() (list []smevRequest) {
			for _, r := range far.Requests() {
				list = append(list, smevRequest{r.Content, r.At})
			}
			return list
		},
		sent:  far.Sent,
		over:  func(s *stack, n int) bool { return len(s.events()) >= n },
		check: func(s *stack, n int) { s.checkAnswers(n) },
	}
}

// run has daemons send requests, kills one with -9 in the middle, and starts it again.
func (r smevRun) run(t *testing.T, far smevEnd) {
	s := newStack(t, stackOptions{
		partitions: 3, kafka: "results: true", settings: "retry: {initial: 200ms}", sinks: "  mvd: " + far.settings,
	})
	s.quota("mvd", "closed", textsOf(r.windows, "")...)
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('passports', $1, 'mvd')`, r.rate)
	s.under("mvd", "passports")
	jobs := make([]job, r.n)
	for i := range jobs {
		jobs[i] = job{campaign: "passports", id: fmt.Sprint("p-", i), payload: smevDocument(fmt.Sprint("p-", i))}
	}
	s.publish(jobs)
	var daemons []*daemon
	for i := range r.daemons {
		daemons = append(daemons, s.start(fmt.Sprint("daemon-", i)))
	}
	s.await(2*time.Minute, "a third of the requests", func() bool { return len(far.registered()) > r.n/3 })
	d := daemons[0]
	d.kill()
	if len(daemons) == 1 {
		s.bury()
	}
	d.launch()
	s.await(5*time.Minute, "all requests, and all responses", func() bool { return len(far.registered()) >= r.n && far.over(s, r.n) })
	for _, d := range daemons {
		d.stop()
	}
	s.checkRequests(far, r)
	far.check(s, r.n)
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
func (s *stack) checkRequests(far smevEnd, r smevRun) {
	s.t.Helper()
	times, again := map[string]int{}, 0
	var list []arrival
	for _, r := range far.registered() {
		times[r.content]++
		list = append(list, arrival{at: r.at.Sub(s.receiver.began).Microseconds()})
	}
	for content, k := range times {
		if k != 1 {
			s.t.Errorf("%s is registered %d times", content, k)
		}
	}
	if len(times) != r.n {
		s.t.Errorf("%d requests of %d jobs", len(times), r.n)
	}
	for _, k := range far.sent() {
		again += k - 1
	}
	if again < far.again {
		s.t.Errorf("%d requests were sent again: the answers that did not come have not been asked for", again)
	}
	sortByTime(list)
	for _, w := range r.windows {
		s.withinWindow(list, w.limit, w.span)
	}
	s.t.Logf("%d requests within %.1f s, %d were sent again", len(list), float64(list[len(list)-1].at-list[0].at)/1e6, again)
}

// checkAnswers: each job comes to its end, and what the adapter said last of its request is in the topic of responses before.
func (s *stack) checkAnswers(n int) {
	s.t.Helper()
	final, kinds, records := map[string]time.Time{}, map[string]int{}, 0
	s.each("smev.responses", func(_ string, r delivery.Record) {
		records++
		kinds[r.Header("smev-kind")]++
		id := r.Header("pacer-job-id")
		if at, ok := final[id]; r.Header("smev-kind") != "status" && (!ok || r.Time.Before(at)) {
			final[id] = r.Time
		}
	})
	events := s.events()
	again := 0
	for id, list := range events {
		at, ok := final[id]
		again += len(list) - 1 // what a daemon had settled and not committed when it was killed is asked for and settled once more
		switch {
		case list[0].Outcome != list[len(list)-1].Outcome:
			s.t.Errorf("%s has %d ends: %+v", id, len(list), list)
		case !ok || at.After(list[0].SettledAt):
			s.t.Errorf("%s was settled at %s, and its response stored at %s", id, list[0].SettledAt, at)
		}
	}
	if len(events) != n {
		s.t.Errorf("%d jobs have an end, of %d", len(events), n)
	}
	s.t.Logf("%d responses in %d records: %v; %d settled once more", len(final), records, kinds, again)
}

// checkResponses: each is acknowledged once, and was written to the topic before.
func (s *stack) checkResponses(far *sinktest.SMEV, acked map[string]time.Time) {
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
