package limits

import (
	"sync"
	"time"
)

// second in the store's microseconds.
const second = int64(time.Second / time.Microsecond)

// shardClock predicts what a shard's clock reads, from its last reply and the local monotonic clock. With the
// prediction, the scripts notice when Redis' own clock steps: the store's time continues as if it had not.
type shardClock struct {
	mu             sync.Mutex
	now, steps     int64
	sent, received time.Time // around now, on the local clock; zero: nothing is known
}

// predictFor is how long a reply may be used for a prediction. Quartz drifts by less than 200 microseconds a second,
// so the error stays far below the step that the scripts look for.
const predictFor = time.Minute

// observe notes that the clock read now in the given steps at some time between sent and received.
func (c *shardClock) observe(now, steps int64, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if steps == c.steps && now < c.now {
		return
	}
	c.now, c.steps, c.sent, c.received = now, steps, sent, received
}

// expect is the range in which the clock is at t, unless it has stepped since; zeros when that is
// not known.
func (c *shardClock) expect(t time.Time) (low, high, steps int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received.IsZero() || t.Sub(c.received) > predictFor {
		return 0, 0, 0
	}
	return c.now + t.Sub(c.received).Microseconds(), c.now + t.Sub(c.sent).Microseconds(), c.steps
}

// at is approximately what the clock reads at t; the local clock's time when nothing is known.
func (c *shardClock) at(t time.Time) (now int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received.IsZero() {
		return t.UnixMicro(), false
	}
	return c.now + t.Sub(c.received).Microseconds(), true
}

// header is the first argument of every script; see lua/state.lua.
type header struct {
	seq       int64
	override  int64 // replaces Redis' clock in tests
	low, high int64 // where the clock is expected to be; without low, high is how soon after the script before
	steps     int64
	sure      bool // that the request is not just late
	epoch     int64
	check     int64
}

// What the scripts compare with the store before they do anything.
const (
	checkNothing = iota
	checkProcess // the epoch, and that the process adopted it
)

func (h header) encode() []byte {
	sure := int64(0)
	if h.sure {
		sure = 1
	}
	b := make([]byte, 0, 41)
	b = put(b, 7, h.seq, h.override, h.low, h.high)
	b = put(b, 4, h.steps)
	b = put(b, 1, sure)
	b = put(b, 7, h.epoch)
	return put(b, 1, h.check)
}
