package count

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Behaviour describes how a destination answers. The zero value accepts everything at once.
type Behaviour struct {
	// MinLatency and MaxLatency bound the random time that an answer takes.
	MinLatency, MaxLatency time.Duration
	// ErrorShare is the share of jobs, 0 to 1, whose first request is answered with 500. It selects them by their ids,
	// so that two runs fail the same jobs.
	ErrorShare float64
	// ThrottleEvery, if set, makes the destination answer 429 at this interval, from its first request on. Until
	// RetryAfter, a number of whole seconds that is less than this, has passed, every other request gets the same answer.
	ThrottleEvery time.Duration
	// RetryAfter is the Retry-After of a 429.
	RetryAfter time.Duration
}

// destination is one path of the receiver and the state of its behaviour.
type destination struct {
	behaviour Behaviour

	mu        sync.Mutex // guards the rest
	started   bool
	throttle  time.Duration // the instant of the next 429
	openAgain time.Duration // end of the closed interval
}

// answer returns the status for the nth request of a job that arrived at the given instant, and the time that the
// answer takes. A refusal for overload is immediate.
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

// unlucky selects a fixed share of all ids.
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
