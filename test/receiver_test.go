package test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/demo/count"
)

// receiver is the destination: it notes every request.
type receiver struct {
	url      string
	began    time.Time
	mu       sync.Mutex
	all      []arrival
	answer   func(a arrival) (status int, retryAfter time.Duration)
	delays   map[string]time.Duration      // before each answer, by campaign, "" for all
	takes    func(a arrival) time.Duration // the same for one request; nil: no time
	says     string                        // the body of an answer that is no success
	trickles bool                          // the body of an answer comes a byte a second
	tallies  map[string]*tally             // by campaign, "" for all
	headers  map[string]bool               // names of the headers of all requests
}

// arrival is one request.
type arrival struct {
	at       int64 // microseconds since the receiver began, on its monotonic clock
	campaign string
	id       string
	attempt  int
	status   int
	bytes    int64
	from     string // address of the client's connection
	foreign  bool   // the payload names another job
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	r := &receiver{
		url: "http://" + l.Addr().String() + "/deliver", began: time.Now(), all: make([]arrival, 0, 1<<17), headers: map[string]bool{},
		tallies: map[string]*tally{}, delays: map[string]time.Duration{},
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ConnContext: count.WithConn}
	go func() { _ = server.Serve(count.Stamped(l)) }()
	t.Cleanup(func() { _ = server.Close() })
	stalls.watch()
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	a := arrival{
		at:       count.ArrivedAt(q, time.Now()).Sub(r.began).Microseconds(), // the kernel's time, not the handler's
		campaign: q.Header.Get("pacer-campaign"), id: q.Header.Get("webhook-id"),
		status: http.StatusOK, from: q.RemoteAddr,
	}
	a.attempt, _ = strconv.Atoi(q.Header.Get("pacer-attempt"))
	head, _ := io.ReadAll(io.LimitReader(q.Body, 512))
	rest, _ := io.Copy(io.Discard, q.Body)
	a.bytes = int64(len(head)) + rest
	a.foreign = bytes.HasPrefix(head, []byte(`{"to":"`)) && !bytes.HasPrefix(head, payloadOf(a.id))
	r.mu.Lock()
	var wait time.Duration
	if r.answer != nil {
		a.status, wait = r.answer(a)
	}
	delay := max(r.delays[""], r.delays[a.campaign])
	if r.takes != nil {
		delay = max(delay, r.takes(a))
	}
	r.all = append(r.all, a)
	r.tallyOf("").note(a)
	r.tallyOf(a.campaign).note(a)
	for name := range q.Header {
		r.headers[name] = true
	}
	r.mu.Unlock()
	if a.status == unanswered {
		<-q.Context().Done()
		panic(http.ErrAbortHandler)
	}
	time.Sleep(delay)
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	w.WriteHeader(a.status)
	if a.status >= http.StatusMultipleChoices {
		_, _ = io.WriteString(w, r.says)
	}
	for r.trickles && q.Context().Err() == nil {
		_, _ = w.Write([]byte("."))
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second)
	}
}

// answers has the receiver answer so from now on; nil: all with 200.
func (r *receiver) answers(f func(a arrival) (status int, retryAfter time.Duration)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// fails has the receiver answer such requests with a status from now on, and all others with 200.
func (r *receiver) fails(status int, such func(a arrival) bool) {
	r.answers(func(a arrival) (int, time.Duration) {
		if such(a) {
			return status, 0
		}
		return http.StatusOK, 0
	})
}

// failsOnce has the receiver answer the first request for each such job with 500.
func (r *receiver) failsOnce(such func(a arrival) bool) {
	failed := map[string]bool{}
	r.fails(http.StatusInternalServerError, func(a arrival) bool {
		if failed[a.id] || !such(a) {
			return false
		}
		failed[a.id] = true
		return true
	})
}

func everyRequest(arrival) bool { return true }

// answersAfter has the receiver answer a campaign, or all (""), so late from now on.
func (r *receiver) answersAfter(campaign string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delays[campaign] = d
}

// now is the receiver's clock.
func (r *receiver) now() int64 { return time.Since(r.began).Microseconds() }

// arrivals are the requests of a campaign ("" for all) so far, in order of time.
func (r *receiver) arrivals(campaign string) (list []arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.all {
		if campaign == "" || a.campaign == campaign {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b arrival) int { return int(a.at - b.at) })
	return list
}

// count is how many requests of a campaign ("" for all) arrived.
func (r *receiver) count(campaign string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tallyOf(campaign).requests
}

// accepted counts the distinct jobs of the campaign ("" for all) that were answered with 2xx, and how often one was
// accepted again.
func (r *receiver) accepted(campaign string) (distinct, duplicates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallyOf(campaign)
	return len(t.accepted), t.again
}

// arrive waits until n jobs of a campaign ("" for all) were accepted.
func (s *stack) arrive(within time.Duration, campaign string, n int) {
	s.t.Helper()
	s.await(within, fmt.Sprintf("%d jobs of %q", n, campaign), func() bool {
		distinct, _ := s.receiver.accepted(campaign)
		return distinct == n
	})
}

// allOnce asserts that n jobs of a campaign ("" for all) were accepted, each once.
func (s *stack) allOnce(campaign string, n int) {
	s.t.Helper()
	if distinct, duplicates := s.receiver.accepted(campaign); distinct != n || duplicates != 0 {
		s.t.Errorf("%d of %d jobs of %q were accepted, and %d again", distinct, n, campaign, duplicates)
	}
}

// tally counts while requests arrive, since those who wait for them ask often.
type tally struct {
	requests int
	accepted map[string]bool // ids
	again    int
}

func (t *tally) note(a arrival) {
	t.requests++
	if a.status/100 != 2 {
		return
	}
	if t.accepted[a.id] {
		t.again++
	}
	t.accepted[a.id] = true
}

// tallyOf is that of a campaign, "" for all. The caller holds the lock.
func (r *receiver) tallyOf(campaign string) *tally {
	t := r.tallies[campaign]
	if t == nil {
		t = &tally{accepted: map[string]bool{}}
		r.tallies[campaign] = t
	}
	return t
}
