package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// instant is one reading of the clocks. A turn of the scheduler has one, and all its decisions use it.
type instant struct {
	local int64     // the local monotonic clock, in microseconds since the Pacer was made
	wall  time.Time // the wall clock
}

type localClock struct{ start time.Time }

func (c localClock) at(t time.Time) instant {
	return instant{local: t.Sub(c.start).Microseconds(), wall: t}
}

func (c localClock) now() instant { return c.at(time.Now()) }

// timeOf is the time of a local one. The wall clock may have been set since the start, so both are taken from now.
func (i instant) timeOf(local int64) time.Time {
	return i.wall.Add(time.Duration(local-i.local) * time.Microsecond)
}

// lastTry is the local time when the job was last sent, or now. The call before that of a step was another one.
func (i instant) lastTry(j *delivery.Job) int64 {
	switch {
	case !j.Call.At.IsZero() && j.State == nil:
		return i.in(j.Call.At.Sub(i.wall))
	case j.From == delivery.FromTimer && j.Reason == string(delivery.ReasonRetry):
		return i.in(j.EnqueuedAt.Time().Sub(i.wall))
	}
	return i.local
}

// in is the local time after d.
func (i instant) in(d time.Duration) int64 { return i.local + d.Microseconds() }

// until is how long it is to a local time; 0 when it has passed.
func (i instant) until(local int64) time.Duration {
	return time.Duration(max(0, local-i.local)) * time.Microsecond
}

// since is how long ago a local time was; 0 when it is to come.
func (i instant) since(local int64) time.Duration {
	return time.Duration(max(0, i.local-local)) * time.Microsecond
}

type storeClocks map[int]*storeClock

func (c storeClocks) of(shard int) *storeClock {
	clock := c[shard]
	if clock == nil {
		clock = &storeClock{}
		c[shard] = clock
	}
	return clock
}

// due is the local time of the queue's first slot; there must be one.
func (c storeClocks) due(q *queue) int64 {
	return c.of(q.grants[0].From.Shard).local(q.timeline.due())
}

// storeClock maps store time to the local monotonic clock. Each take says that the store's clock read now at some moment before the reply
// arrived. So now - arrival is a lower bound of the difference between the clocks; the largest in the last minute is the tightest. A
// lower bound never lets a slot be used early; it makes slots late by the shortest one-way delay seen, a fraction of a millisecond. Two
// half-windows let old bounds expire, so that drift and a stepped store clock are followed. The zero value has no bound yet.
type storeClock struct {
	current, previous int64
	since             int64 // local time at which current began
	known             int   // half-windows with a bound: 0, 1, 2
	jumped            int64 // by how much the store's clock has jumped, in all
}

const clockHalfWindow = 10_000_000 // microseconds
const clockStep = 50_000           // microseconds: a larger disagreement is a step of the store's clock

// jump notes that the store's clock has jumped: nothing is known of it any more.
func (c *storeClock) jump(by int64) { *c = storeClock{jumped: c.jumped + by} }

// observe notes that a reply with store time now arrived at local time arrival. It reports whether the store's clock has
// stepped forward.
func (c *storeClock) observe(now, arrival int64) (stepped bool) {
	bound := now - arrival
	if c.known > 0 && bound-c.offset() > clockStep {
		c.known, stepped = 0, true
	}
	switch {
	case c.known == 0:
		c.current, c.since, c.known = bound, arrival, 1
	case arrival-c.since > clockHalfWindow:
		c.previous, c.current, c.since, c.known = c.current, bound, arrival, 2
	case bound > c.current:
		c.current = bound
	}
	return stepped
}

// offset is store time minus local time.
func (c *storeClock) offset() int64 {
	if c.known == 2 {
		return max(c.previous, c.current)
	}
	return c.current
}

func (c *storeClock) local(store int64) int64 { return store - c.offset() }

func (c *storeClock) store(local int64) int64 { return local + c.offset() }
