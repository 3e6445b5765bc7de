package embedded

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Behaviour is how a destination answers. The zero value accepts everything at once.
type Behaviour struct {
	// MinLatency and MaxLatency bound the time that an answer takes; each takes a random time between them.
	MinLatency, MaxLatency time.Duration
	// ErrorShare is the share of jobs, 0 to 1, whose first request is answered with 500. Which ones follows from
	// their ids, so that two runs fail the same jobs.
	ErrorShare float64
	// ThrottleEvery, if set, makes the destination answer 429 once that much time has passed since its first
	// request, and again and again at the same interval. Until RetryAfter has passed everything else gets the same
	// answer.
	ThrottleEvery time.Duration
	// RetryAfter is what a 429 asks for, in whole seconds.
	RetryAfter time.Duration
}

func (b Behaviour) validate() error {
	switch {
	case b.MinLatency < 0 || b.MaxLatency < b.MinLatency:
		return fmt.Errorf("latencies %s to %s are not a range", b.MinLatency, b.MaxLatency)
	case b.ErrorShare < 0 || b.ErrorShare > 1:
		return fmt.Errorf("error share %g is not between 0 and 1", b.ErrorShare)
	case b.ThrottleEvery > 0 && b.RetryAfter < time.Second:
		return errors.New("a throttling destination needs a RetryAfter of at least a second")
	case b.ThrottleEvery > 0 && b.ThrottleEvery <= b.RetryAfter:
		return errors.New("a destination must not throttle more often than it asks to wait")
	case b.RetryAfter%time.Second != 0:
		return errors.New("RetryAfter is sent in whole seconds")
	}
	return nil
}

// destination is one path of the receiver and the state of its behaviour.
type destination struct {
	behaviour Behaviour

	mu        sync.Mutex // guards the rest
	started   bool
	throttle  time.Duration // the instant of the next 429
	openAgain time.Duration // end of the closed stretch
}

// answer decides the status for the nth request of a job that arrived at the given instant, and how long it
// takes. A refusal for overload is immediate: that is the point of it.
func (d *destination) answer(job string, nth int, at time.Duration) (status int, latency time.Duration) {
	b := d.behaviour
	if b.ThrottleEvery > 0 && d.throttled(at) {
		return http.StatusTooManyRequests, 0
	}
	latency = b.MinLatency
	if spread := b.MaxLatency - b.MinLatency; spread > 0 {
		latency += rand.N(spread)
	}
	if nth == 1 && unlucky(job, b.ErrorShare) {
		return http.StatusInternalServerError, latency
	}
	return http.StatusOK, latency
}

func (d *destination) throttled(at time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started {
		d.started, d.throttle = true, at+d.behaviour.ThrottleEvery
	}
	if at >= d.throttle {
		d.openAgain = at + d.behaviour.RetryAfter
		for d.throttle <= at {
			d.throttle += d.behaviour.ThrottleEvery
		}
	}
	return at < d.openAgain
}

// unlucky picks a share of all ids, always the same ones.
func unlucky(job string, share float64) bool {
	if share <= 0 {
		return false
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(job)) // a hash does not fail
	// FNV's low bits depend on the last characters alone, which count up; its high bits are well mixed only after
	// another multiplication.
	return float64((h.Sum64()*0x9e3779b97f4a7c15)>>11) < share*(1<<53)
}
