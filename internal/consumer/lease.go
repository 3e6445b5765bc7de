package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

// lookEvery is how often a lease is looked at.
const lookEvery = time.Second

// lease reports whether the partitions that are held still belong to this daemon, as far as it can know. The group gives up on a member
// that is silent for the session timeout, so every answer to a heartbeat proves that it has not until then. They no longer belong to it
// once the group has refused a heartbeat or a commit, or once that time is over. The time runs out if no answer comes, or while the
// process or its machine is suspended. The first goroutine that runs again finds that out, whichever it is, since the lease is looked at
// before jobs are sent. So jobs that have waited meanwhile, which other daemons have by now, are not sent.
//
// It is safe for concurrent use; the zero value has no partitions, and nothing to lose.
type lease struct {
	mu     sync.Mutex
	seen   time.Time                // when the last heartbeat that was answered was sent; zero while nothing is held
	lost   bool                     // until everything is let go of
	onLost func(idle time.Duration) // called once, when nothing was heard for idle; 0 for another reason
}

// begin begins to hold partitions.
func (l *lease) begin(now time.Time, onLost func(idle time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.lost, l.onLost = now, false, onLost
}

// end ends it: everything was let go of.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.lost, l.onLost = time.Time{}, false, nil
}

// renew notes that the group has answered a heartbeat that was sent at a time.
func (l *lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen.IsZero() && sent.After(l.seen) {
		l.seen = sent
	}
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

// idle is for how long nothing was heard at now. Needs the lock.
func (l *lease) idle(now time.Time) time.Duration {
	// The clock that only runs forward may stand still while a machine is suspended; the other one may be set.
	return max(now.Sub(l.seen), now.Round(0).Sub(l.seen.Round(0)))
}

// holds reports whether the partitions belong to this daemon at now.
func (l *lease) holds(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen.IsZero() {
		return true
	}
	if idle := l.idle(now); idle > sessionTimeout {
		l.drop(idle)
	}
	return !l.lost
}

// watch looks at the lease until ctx ends, and ends it so long before the group does, so that there is time to let go of the
// partitions. One look is not enough for that: a process that stood still for a moment has to be heard first.
func (l *lease) watch(ctx context.Context, before time.Duration) {
	silent := false
	retry.Every(ctx, lookEvery, func(time.Time) {
		now := time.Now() // a tick may be old
		if !l.holds(now) {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		idle := l.idle(now)
		if silent && idle > sessionTimeout-before {
			l.drop(idle)
		}
		silent = idle > sessionTimeout-before
	})
}

// Owns reports whether the partitions that this daemon reads still belong to it, as far as it can know at now. Jobs that
// it has read must not be sent otherwise. Then all sources are revoked, and Handler.Revoke is called.
func (c *Consumer) Owns(now time.Time) bool { return c.lease.holds(now) }
