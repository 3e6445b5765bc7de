package limits

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/retry"
)

// second in the store's microseconds.
const second = int64(time.Second / time.Microsecond)

// shardClock foretells what a shard's clock reads, from its last reply and the time that this machine has been up since then. The
// scripts refuse a clock that is more than a second off: a clock that jumps is a store that has lost its data.
type shardClock struct {
	mu             sync.Mutex
	now            int64 // between the uptimes sent and received; 0: nothing is known
	sent, received int64
	since          int64 // the uptime from which on it read what was foretold
}

const (
	// witnessAfter is how long a daemon foretells a clock before others go by its word: what it learnt last may be a jump.
	witnessAfter = 10 * second
	// drift is one part in how many two clocks may drift apart.
	drift = 1000
)

// observe notes that the clock read now between two uptimes.
func (c *shardClock) observe(now, sent, received int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == 0 {
		c.since = received
	}
	if received >= c.received {
		c.now, c.sent, c.received = now, sent, received
	}
}

// renew takes a reading as it is. It returns by how much the clock has jumped, 0 if that is less than a second or not known.
func (c *shardClock) renew(now, sent, received int64) (jumped int64) {
	if low, _, _ := c.expect(sent); low > 0 && now < low-second {
		jumped = now - low
	}
	if _, high, _ := c.expect(received); high > 0 && now > high+second {
		jumped = now - high
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == 0 || jumped != 0 {
		c.since = received
	}
	c.now, c.sent, c.received = now, sent, received
	return jumped
}

// expect returns the range of the clock at an uptime, zeros if it is unknown, and whether the clock is known for long.
func (c *shardClock) expect(at int64) (low, high int64, witness bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == 0 {
		return 0, 0, false
	}
	low, high = c.now+at-c.received, c.now+at-c.sent
	slack := max(0, at-c.received) / drift
	return low - slack, high + slack, at-c.since > witnessAfter
}

// at is approximately what the clock reads at an uptime; the local clock's time when nothing is known.
func (c *shardClock) at(at int64) (now int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == 0 {
		return time.Now().UnixMicro(), false
	}
	return c.now + at - c.received, true
}

// judge finds out why a script found the clock outside the foretold range. It returns an error if the clock has jumped, and nil if the
// call is to be sent again: the call took as long as the clock is off, or this machine stood still, as another daemon shows that saw the
// clock meanwhile.
func (r *runner) judge(c *call, sent, received int64) error {
	var now, unseen int64
	if _, err := fmt.Sscanf(c.err.Error(), "CLOCK %d %d", &now, &unseen); err != nil || c.head.low == 0 {
		return ledger.ErrClock
	}
	switch {
	case now > c.head.high && now-c.head.high <= received-sent:
		return nil
	case 2*unseen < max(now-c.head.high, c.head.low-now):
		r.clock.renew(now, sent, received)
		return nil
	}
	return ledger.ErrClock
}

// header is the first argument of every script; see lua/state.lua.
type header struct {
	seq       int64
	override  int64 // replaces Redis' clock in tests
	low, high int64 // where the clock must be, zeros: it is not known
	witness   bool
	epoch     int64 // that the data must have, 0: any
}

func (h header) encode() []byte {
	b := make([]byte, 0, 36)
	b = put(b, 7, h.seq, h.override, h.low, h.high)
	b = put(b, 1, bit(h.witness))
	return put(b, 7, h.epoch)
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

const (
	clocksEvery = time.Second
	// clockOff is by how much a store's clock may differ from this machine's before that is logged.
	clockOff = 5 * time.Second
)

// watchClocks compares the stores' clocks with this machine's until ctx ends.
func (e *Engine) watchClocks(ctx context.Context) {
	off := map[int]bool{}
	retry.Every(ctx, clocksEvery, func(time.Time) { e.compareClocks(off) })
}

// compareClocks exports by how much each shard's clock is ahead, and logs which begin and end to be far off; off says which were.
func (e *Engine) compareClocks(off map[int]bool) {
	for i, s := range e.shards {
		now, known := s.time()
		if !known {
			continue
		}
		ahead := time.Duration(now-time.Now().UnixMicro()) * time.Microsecond
		e.m.clockOffset.WithLabelValues(strconv.Itoa(i)).Set(ahead.Seconds())
		if far := ahead.Abs() > clockOff; far != off[i] {
			off[i] = far
			log, text := e.log.Info, "the clock of redis agrees with this machine's again"
			if far {
				log, text = e.log.Warn, "the clock of redis differs from this machine's; days and hours of quotas begin by it: set the clock that is wrong by NTP"
			}
			log(text, "shard", i, "ahead", ahead.Round(time.Millisecond))
		}
	}
}
