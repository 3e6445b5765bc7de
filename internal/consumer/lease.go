package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

// lookEvery is how often a lease is looked at.
const lookEvery = time.Second

// lease tells whether the partitions of a generation still belong to this daemon, as far as it can know. They do not when
// the group has refused a commit, or when the process stood still for longer than the session timeout: it was suspended,
// or its machine was. The first goroutine that runs again finds that out, whichever it is, since the lease is looked at
// every second and before jobs are sent. So jobs that have waited meanwhile, which other daemons have by now, are not sent.
//
// It is safe for concurrent use; the zero value has no generation, and nothing to lose.
type lease struct {
	mu     sync.Mutex
	seen   time.Time                // at the last look; zero without a generation
	lost   bool                     // until the generation has ended
	onLost func(idle time.Duration) // called once, when the process stood still for idle; 0 for another reason
}

// begin begins a generation.
func (l *lease) begin(now time.Time, onLost func(idle time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.lost, l.onLost = now, false, onLost
}

// end ends the generation.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.lost, l.onLost = time.Time{}, false, nil
}

// lose ends the lease.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(0)
}

// drop is lose with the lock.
func (l *lease) drop(idle time.Duration) {
	if l.lost || l.seen.IsZero() {
		return
	}
	l.lost = true
	l.onLost(idle)
}

// holds reports whether the partitions belong to this daemon at now.
func (l *lease) holds(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen.IsZero() {
		return true
	}
	// The clock that only runs forward may stand still while a machine is suspended; the other one may be set.
	idle := max(now.Sub(l.seen), now.Round(0).Sub(l.seen.Round(0)))
	if idle > sessionTimeout {
		l.drop(idle)
	}
	return !l.lost
}

// watch looks at the lease until ctx ends.
func (l *lease) watch(ctx context.Context) {
	retry.Every(ctx, lookEvery, func(time.Time) {
		now := time.Now() // a tick may be old
		if !l.holds(now) {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen = now
	})
}

// Owns reports whether the partitions that this daemon reads still belong to it, as far as it can know at now. Jobs that
// it has read must not be sent otherwise; Handler.Drain is called then.
func (c *Consumer) Owns(now time.Time) bool { return c.lease.holds(now) }
