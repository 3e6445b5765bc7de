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
	destination   float64 // of the planned units, those not sent while the destination kept them from being sent
	ready         float64 // units that could be sent when it was looked at last
}

// lagReading is what is observed of a campaign at one time.
type lagReading struct {
	rate        float64 // units per second that it should send; 0 while it may not
	sent        float64 // units that it sent since the look before
	ready       float64 // units that could be sent now
	destination bool    // its destination keeps it from sending
}

// Lateness is how many jobs are late, and how many of them because of their destination.
type Lateness struct{ Jobs, Destination int64 }

// Capacity returns the jobs that more daemons, or faster sinks, would have sent.
func (l Lateness) Capacity() int64 { return l.Jobs - l.Destination }

// after returns the debt dt later. Only what was there at the look before should have been sent since: of a campaign that is published
// slower than its rate, something waits at each look and nothing is late. Jobs sent beyond that count only for lagGrace: reports may
// differ by that time.
func (d debt) after(dt time.Duration, l lagReading) debt {
	fade := math.Exp(-dt.Seconds() / lagMemory.Seconds())
	d.planned *= fade
	d.sent *= fade
	d.destination *= fade
	if l.rate > 0 {
		owed := min(l.rate*dt.Seconds(), d.ready)
		d.planned += owed
		d.sent = min(d.sent+l.sent, d.planned+l.rate*lagGrace.Seconds())
		if l.destination {
			d.destination += max(0, owed-l.sent)
		}
	}
	d.ready = l.ready
	return d
}

// late returns how many jobs, of the average weight weight, should have been sent by now. Jobs that can be sent within a second
// are not late.
func (d debt) late(rate, weight float64) Lateness {
	missing := d.planned*(1-lagTolerance) - d.sent - rate*lagGrace.Seconds()
	jobs := max(0, min(missing, d.ready-rate)/weight)
	return Lateness{int64(jobs), int64(min(jobs, d.destination/weight))}
}
