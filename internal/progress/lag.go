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
	barred        float64 // of the planned units, those not sent while the destination kept them from being sent
}

// lateness is how many jobs are late, and how many of them because of their destination.
type lateness struct{ jobs, barred int64 }

// capacity returns the jobs that more daemons, or faster sinks, would have sent.
func (l lateness) capacity() int64 { return l.jobs - l.barred }

// after returns the debt dt later. While the campaign should send, rate is its units per second and sent the units that
// it sent; otherwise rate is 0. barred says that its destination kept it from sending.
func (d debt) after(dt time.Duration, rate, sent float64, barred bool) debt {
	fade := math.Exp(-dt.Seconds() / lagMemory.Seconds())
	d.planned *= fade
	d.sent *= fade
	d.barred *= fade
	if rate > 0 {
		d.planned += rate * dt.Seconds()
		d.sent += sent
		if barred {
			d.barred += max(0, rate*dt.Seconds()-sent)
		}
	}
	return d
}

// late returns how many of the waiting jobs, of the average weight weight, should have been sent by now. Jobs that can
// be sent within a second are not late.
func (d debt) late(rate float64, waiting int64, weight float64) lateness {
	missing := d.planned*(1-lagTolerance) - d.sent - rate*lagGrace.Seconds()
	jobs := max(0, min(missing/weight, float64(waiting)-rate/weight))
	return lateness{jobs: int64(jobs), barred: int64(min(jobs, d.barred/weight))}
}
