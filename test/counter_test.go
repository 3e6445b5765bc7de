//go:build e2e

package test

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// counter is a destination that does little but count, so that the sender is what is measured. Its paths "/0", "/1" and
// so on tell the daemons apart.
type counter struct {
	url           string
	answer        time.Duration // how long an answer takes
	spread        time.Duration // by how much, at most, an answer takes longer or shorter
	began         time.Time
	requests      [counterPaths][counterTicks]atomic.Int32 // by path and tick
	total, twice  atomic.Int64
	seen          [counterJobs / 64]atomic.Uint64 // a bit for each job, by the number in its id
	outsideOfTime atomic.Int64
}

const (
	counterPaths = 10
	counterTick  = 10 * time.Millisecond
	counterTicks = 100 * 1200
	counterJobs  = 1 << 22
)

func newCounter(t *testing.T) *counter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	c := &counter{url: "http://" + l.Addr().String() + "/", began: time.Now()}
	server := &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return c
}

func (c *counter) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	at := time.Since(c.began)
	path, _ := strconv.Atoi(q.URL.Path[1:])
	_, _ = io.Copy(io.Discard, q.Body)
	if tick := int(at / counterTick); path >= counterPaths || tick >= counterTicks {
		c.outsideOfTime.Add(1)
	} else {
		c.requests[path][tick].Add(1)
	}
	c.total.Add(1)
	id := q.Header.Get("webhook-id")
	if number, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:]); err == nil && number < counterJobs {
		if bit := uint64(1) << (number % 64); c.seen[number/64].Or(bit)&bit != 0 {
			c.twice.Add(1)
		}
	}
	if wait := c.answer; wait > 0 {
		if c.spread > 0 {
			wait += rand.N(2*c.spread) - c.spread
		}
		time.Sleep(wait)
	}
	w.WriteHeader(http.StatusOK)
}

// now is the time on the counter's clock.
func (c *counter) now() time.Duration { return time.Since(c.began) }

// count is how many requests have arrived.
func (c *counter) count() int64 { return c.total.Load() }

// between counts the requests of a path, or of all (-1), in a stretch of time.
func (c *counter) between(path int, from, to time.Duration) (n int) {
	for p := range c.requests {
		if path >= 0 && p != path {
			continue
		}
		for tick := from / counterTick; tick < min(to/counterTick, counterTicks); tick++ {
			n += int(c.requests[p][tick].Load())
		}
	}
	return n
}

// check fails the test if the counter is not complete, or if a job has arrived more than once.
func (c *counter) check(t *testing.T, mayRepeat bool) {
	t.Helper()
	if n := c.outsideOfTime.Load(); n > 0 {
		t.Errorf("%d requests were not counted by time", n)
	}
	if n := c.twice.Load(); n > 0 && !mayRepeat {
		t.Errorf("%d jobs arrived twice", n)
	}
}

// reset forgets which jobs have arrived, for another campaign's jobs of the same numbers.
func (c *counter) reset() {
	for i := range c.seen {
		c.seen[i].Store(0)
	}
	c.total.Store(0)
}
