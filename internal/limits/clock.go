package limits

import (
	"sync"
	"time"
)

// second in the store's microseconds.
const second = int64(time.Second / time.Microsecond)

// shardClock foretells what a shard's clock reads, from its last reply and the local monotonic clock. With that, the
// scripts notice when Redis' own clock steps: the store's time goes on as if it had not.
type shardClock struct {
	mu             sync.Mutex
	now, epoch     int64
	sent, received time.Time // around now, on the local clock; zero: nothing is known
}

// foretellFor is how long a reply serves for a prediction. Quartz drifts by less than 200 microseconds a second, so the
// error stays far below the step that the scripts look for.
const foretellFor = time.Minute

// observe notes that the clock read now in the given epoch at some time between sent and received.
func (c *shardClock) observe(now, epoch int64, sent, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch && now < c.now {
		return
	}
	c.now, c.epoch, c.sent, c.received = now, epoch, sent, received
}

// expect is where the clock is at t if it is still in the epoch; zeros when that is not known.
func (c *shardClock) expect(t time.Time) (low, high, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received.IsZero() || t.Sub(c.received) > foretellFor {
		return 0, 0, 0
	}
	return c.now + t.Sub(c.received).Microseconds(), c.now + t.Sub(c.sent).Microseconds(), c.epoch
}

// at is about what the clock reads at t; the local clock's time when nothing is known.
func (c *shardClock) at(t time.Time) (now int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received.IsZero() {
		return t.UnixMicro(), false
	}
	return c.now + t.Sub(c.received).Microseconds(), true
}

// header is what every script is told first; see lua/state.lua.
type header struct {
	seq         int64
	override    int64 // in the place of Redis' clock, in tests
	low, high   int64 // where the clock is expected to be; without low, high is how soon after the script before
	epoch       int64
	sure        bool // that the request is not just late
	incarnation int64
	check       int64
}

// What the scripts compare with the store before they do anything.
const (
	checkNothing = iota
	checkProcess // the incarnation, and that the process adopted it
	checkReplica // the incarnation only
)

func (h header) encode() []byte {
	sure := int64(0)
	if h.sure {
		sure = 1
	}
	b := make([]byte, 0, 41)
	b = put(b, 7, h.seq, h.override, h.low, h.high)
	b = put(b, 4, h.epoch)
	b = put(b, 1, sure)
	b = put(b, 7, h.incarnation)
	return put(b, 1, h.check)
}
