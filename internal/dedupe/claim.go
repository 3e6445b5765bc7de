package dedupe

import (
	"encoding/binary"
	"time"
)

// claim is this daemon's interest in a job: while it is being sent, and for a moment after its slot had passed before the
// ledger answered.
type claim struct {
	busy  bool      // a call of Deliver has it
	begun time.Time // when the entry was made; the claim in Redis lasts longer than a sink's timeout from here on
	entry *entry    // nil before the ledger was asked
}

// keptFor is how long a claim waits for its job to come again. Its answer may have come too late for a slot, and asking
// anew each time could be too late each time.
const keptFor = 2 * time.Second

// enter begins a call for the job; nil when one is under way in this daemon.
func (l *Ledger) enter(i id) *claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[i]
	if c == nil {
		c = &claim{}
		l.claims[i] = c
	}
	if c.busy {
		return nil
	}
	c.busy = true
	return c
}

// drop ends the daemon's interest in the job.
func (l *Ledger) drop(i id) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.claims, i)
}

// keep ends the call and keeps the claim for the job's next one.
func (l *Ledger) keep(c *claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.busy = false
}

// sweep drops the claims whose jobs did not come again, as after a rebalance, and lets others have them.
func (l *Ledger) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.claims {
		if c.busy || now.Sub(c.begun) < keptFor {
			continue
		}
		delete(l.claims, i)
		c.entry.gone.Store(true)
		if c.entry.has() {
			l.release(i, c.entry.token)
		}
	}
}

// has tells whether the ledger has answered that the claim is this daemon's.
func (e *entry) has() bool {
	select {
	case <-e.done:
		return e.err == nil && e.answer == claimed
	default:
		return false
	}
}

// usable tells whether an earlier call's question still stands: it has an answer that still holds, or will soon.
func (c *claim) usable(now time.Time) bool {
	if c.entry == nil || now.Sub(c.begun) >= keptFor {
		return false
	}
	select {
	case <-c.entry.done:
		return c.entry.has()
	default:
		return true
	}
}

// ask asks the ledger for the job, unless it has been asked a moment ago.
func (l *Ledger) ask(c *claim, i id, sink string) {
	now := time.Now()
	if c.usable(now) {
		return
	}
	if c.entry != nil {
		c.entry.gone.Store(true)
	}
	c.begun = now
	c.entry = newEntry(claimEntry, i, l.token(), l.timeouts[sink]+claimMargin)
	l.shard(i).add(c.entry)
}

// token is a new one: the node, and a number.
func (l *Ledger) token() string {
	var buf [16]byte
	copy(buf[:], l.node)
	binary.BigEndian.PutUint64(buf[8:], l.tokens.Add(1))
	return string(buf[:])
}
