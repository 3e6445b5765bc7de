package dedupe

import (
	"encoding/binary"
	"time"
)

// lease is this daemon's use of a job: while the job is being sent, and for a moment after its slot has passed before
// the ledger answered.
type lease struct {
	busy  bool      // a call of Deliver uses it
	begun time.Time // when the entry was made; the lease in Redis lasts longer than a sink's timeout from here on
	entry *entry    // nil until the ledger is asked
}

// keptFor is how long a lease is kept until its job is offered again. The answer may have come too late for the slot;
// with a new request each time, it could be too late each time.
const keptFor = 2 * time.Second

// enter begins a call for the job; it returns nil if one is in progress in this daemon.
func (l *Ledger) enter(i id) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.leases[i]
	if c == nil {
		c = &lease{}
		l.leases[i] = c
	}
	if c.busy {
		return nil
	}
	c.busy = true
	return c
}

// drop forgets the job's lease.
func (l *Ledger) drop(i id) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, i)
}

// sweep releases the leases of jobs that were not offered again, as after a rebalance.
func (l *Ledger) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.leases {
		if c.busy || now.Sub(c.begun) < keptFor {
			continue
		}
		delete(l.leases, i)
		c.entry.gone.Store(true)
		l.release(i, c.entry.token) // after the lease, if that is on its way
	}
}

// usable reports whether the request of an earlier call can be used: its answer still holds, or is on its way.
func (c *lease) usable(now time.Time) bool {
	if c.entry == nil || now.Sub(c.begun) >= keptFor {
		return false
	}
	select {
	case <-c.entry.done:
		return c.entry.err == nil && c.entry.answer == leased
	default:
		return true
	}
}

// ask requests a lease for the job, unless that was done a moment ago.
func (l *Ledger) ask(c *lease, i id, sink string) {
	now := time.Now()
	if c.usable(now) {
		return
	}
	if c.entry != nil {
		c.entry.gone.Store(true)
	}
	c.begun = now
	c.entry = newEntry(leaseEntry, i, l.token(), l.options.Timeouts[sink]+leaseMargin)
	l.shard(i).Add(c.entry)
}

// token returns a new token: the node and a number.
func (l *Ledger) token() string {
	var buf [16]byte
	copy(buf[:], l.node)
	binary.BigEndian.PutUint64(buf[8:], l.tokens.Add(1))
	return string(buf[:])
}
