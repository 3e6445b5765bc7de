package progress

import (
	"math"
	"time"
)

const (
	// lagMemory is the time constant of the comparison of what should have been sent with what was.
	lagMemory = time.Minute
	// lagTolerance is the part of the planned rate that may be missing: a few slots are always lost.
	lagTolerance = 0.05
	// lagGrace is how long what should have been sent may be under way: to the destination, and to the board.
	lagGrace = 2 * time.Second
)

// debt compares what a campaign should have sent with what it has. Both fade with lagMemory, so that a slot lost is
// forgotten: it does not come again, and nobody can do anything about it any more.
type debt struct {
	planned, sent float64 // units
}

// step goes on by dt. While the campaign should send, rate is its units per second and sent what it did; else rate is 0.
func (d *debt) step(dt time.Duration, rate, sent float64) {
	fade := math.Exp(-dt.Seconds() / lagMemory.Seconds())
	d.planned *= fade
	d.sent *= fade
	if rate > 0 {
		d.planned += rate * dt.Seconds()
		d.sent += sent
	}
}

// late is how many of the waiting jobs, of so many units each, should have gone by now. What goes within a second is
// not late.
func (d *debt) late(rate float64, waiting int64, weight float64) int64 {
	missing := d.planned*(1-lagTolerance) - d.sent - rate*lagGrace.Seconds()
	return int64(max(0, min(missing/weight, float64(waiting)-rate/weight)))
}

func (d *debt) forgotten() bool { return d.planned < 0.01 }
