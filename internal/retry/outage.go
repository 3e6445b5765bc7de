package retry

import (
	"sync"
	"time"
)

// Outage tells the first failure of a service from the following ones, and the first success after them from the
// following ones, so that a log has one line for each:
//
//	if err != nil {
//		if o.Failed() {
//			log.Warn("the store does not answer", "error", err)
//		}
//	} else if lasted, over := o.Worked(); over {
//		log.Info("the store answers again", "outage", lasted)
//	}
//
// The zero value is a service that works. It is safe for concurrent use.
type Outage struct {
	mu       sync.Mutex
	failures int
	since    time.Time // of the first of them
}

// Failed notes a failure. It returns true for the first one of an outage.
func (o *Outage) Failed() (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures++
	if o.failures == 1 {
		o.since = time.Now()
	}
	return o.failures == 1
}

// Worked notes a success. If it ends an outage, over is true and lasted the time since its first failure.
func (o *Outage) Worked() (lasted time.Duration, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures == 0 {
		return 0, false
	}
	lasted = time.Since(o.since)
	o.failures = 0
	return lasted, true
}

// Lasts is how long the outage has lasted so far; 0 while the service works.
func (o *Outage) Lasts() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures == 0 {
		return 0
	}
	return time.Since(o.since)
}

// Failures is how many failures there were since the last success; 0 while the service works.
func (o *Outage) Failures() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failures
}
