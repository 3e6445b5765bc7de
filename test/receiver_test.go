package test

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/embedded"
)

// receiver is the destination: it notes every request.
type receiver struct {
	url    string
	began  time.Time
	mu     sync.Mutex
	all    []arrival
	answer func(a arrival) (status int, retryAfter time.Duration)
	delay  time.Duration
	stall  time.Duration // the longest that this process was kept from running when it was due
}

// arrival is one request.
type arrival struct {
	at       int64 // microseconds since the receiver began, on its monotonic clock
	campaign string
	id       string
	attempt  int
	status   int
	bytes    int64
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/deliver", began: time.Now(), all: make([]arrival, 0, 1<<17)}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ConnContext: embedded.WithConn}
	go func() { _ = server.Serve(embedded.Stamped(l)) }()
	t.Cleanup(func() { _ = server.Close() })
	go r.watch(t.Context().Done())
	return r
}

// watch measures how late this process runs what is due. The daemons share the machine's processors with it, with each
// other and with a broker: what keeps one from running between its decision and the wire keeps this one as well.
func (r *receiver) watch(done <-chan struct{}) {
	const every = time.Millisecond
	for {
		due := time.Now().Add(every)
		select {
		case <-time.After(every):
		case <-done:
			return
		}
		late := time.Since(due)
		r.mu.Lock()
		r.stall = max(r.stall, late)
		r.mu.Unlock()
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	a := arrival{
		at:       embedded.ArrivedAt(q, time.Now()).Sub(r.began).Microseconds(), // the kernel's time, not the handler's
		campaign: q.Header.Get("pacer-campaign"), id: q.Header.Get("webhook-id"),
		status: http.StatusOK,
	}
	a.attempt, _ = strconv.Atoi(q.Header.Get("pacer-attempt"))
	a.bytes, _ = io.Copy(io.Discard, q.Body)
	r.mu.Lock()
	var wait time.Duration
	if r.answer != nil {
		a.status, wait = r.answer(a)
	}
	delay := r.delay
	r.all = append(r.all, a)
	r.mu.Unlock()
	time.Sleep(delay)
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	w.WriteHeader(a.status)
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
func (r *receiver) count(campaign string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if campaign == "" {
		return len(r.all)
	}
	for _, a := range r.all {
		if a.campaign == campaign {
			n++
		}
	}
	return n
}

// accepted counts the distinct jobs of the campaign ("" for all) that were answered with 2xx, and how often one was
// accepted again.
func (r *receiver) accepted(campaign string) (distinct, duplicates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, a := range r.all {
		if a.status/100 != 2 || campaign != "" && a.campaign != campaign {
			continue
		}
		if seen[a.id] {
			duplicates++
		}
		seen[a.id] = true
	}
	return len(seen), duplicates
}

// overRate is by how much the arrivals (in order of time) exceed rate * (L + tolerance) in their worst stretch of L
// seconds: at most 1 when every slot was used on time, whatever L. It is the leaky bucket's level, found in one pass.
func overRate(list []arrival, rate float64, tolerance time.Duration) float64 {
	level, worst, last := 0.0, 0.0, int64(0)
	for _, a := range list {
		level = max(0, level-rate*float64(a.at-last)/1e6) + 1
		last = a.at
		worst = max(worst, level)
	}
	return worst - rate*tolerance.Seconds()
}

// rolling is the largest number of arrivals (in order of time) in any stretch of the given length.
func rolling(list []arrival, span time.Duration) (most int) {
	first := 0
	for i, a := range list {
		for list[first].at <= a.at-span.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// rate is the average of the arrivals in [from, to), per second.
func rate(list []arrival, from, to int64) float64 {
	n := 0
	for _, a := range list {
		if a.at >= from && a.at < to {
			n++
		}
	}
	return float64(n) / (float64(to-from) / 1e6)
}
