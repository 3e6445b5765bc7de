package progress

import (
	"math"
	"time"
)

const (
	// lagMemory is the time constant of the comparison of planned and actual sending.
	lagMemory = time.Minute
	// lagTolerance is the part of the planned rate that may be missing: a few slots are always lost.
	lagTolerance = 0.05
	// lagGrace is how long a planned unit may be in transit: to the destination, and to the exchange.
	lagGrace = 2 * time.Second
)

// debt compares the units that a campaign should have sent with those that it has sent. Both decay with lagMemory, so
// that a lost slot, which does not come again, is forgotten.
type debt struct {
	planned, sent float64 // units
}

// after returns the debt dt later. While the campaign should send, rate is its units per second and sent the units that
// it sent; otherwise rate is 0.
func (d debt) after(dt time.Duration, rate, sent float64) debt {
	fade := math.Exp(-dt.Seconds() / lagMemory.Seconds())
	d.planned *= fade
	d.sent *= fade
	if rate > 0 {
		d.planned += rate * dt.Seconds()
		d.sent += sent
	}
	return d
}

// late returns how many of the waiting jobs, of the average weight weight, should have been sent by now. Jobs that can
// be sent within a second are not late.
func (d debt) late(rate float64, waiting int64, weight float64) int64 {
	missing := d.planned*(1-lagTolerance) - d.sent - rate*lagGrace.Seconds()
	return int64(max(0, min(missing/weight, float64(waiting)-rate/weight)))
}
