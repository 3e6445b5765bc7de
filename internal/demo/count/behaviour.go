package count

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Behaviour describes how a destination answers. The zero value accepts everything at once.
type Behaviour struct {
	// MinLatency and MaxLatency bound the random time that an answer takes.
	MinLatency, MaxLatency time.Duration
	// ErrorEvery, if set, has the first request of one in so many jobs answered with 500.
	ErrorEvery int
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

// answer returns the status for the nth request of the job with a number that arrived at the given instant, and the time that the
// answer takes. A refusal for overload is immediate.
func (d *destination) answer(job, nth int, at time.Duration) (status int, latency time.Duration) {
	b := d.behaviour
	if b.ThrottleEvery > 0 && d.throttled(at) {
		return http.StatusTooManyRequests, 0
	}
	latency = b.MinLatency
	if spread := b.MaxLatency - b.MinLatency; spread > 0 {
		latency += rand.N(spread)
	}
	if b.ErrorEvery > 0 && nth == 1 && job%b.ErrorEvery == b.ErrorEvery/2 {
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
