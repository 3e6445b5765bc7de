package consumer

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/consumer/offset"
)

// stallTimer measures how long a mark has not moved although it could have. The zero value has observed nothing.
type stallTimer struct {
	mark  uint64
	since time.Time // when the mark was first seen at its value and able to move; zero while it cannot move
}

// look records the mark at now and returns how long it has not moved.
func (s *stallTimer) look(now time.Time, mark uint64, could bool) time.Duration {
	switch {
	case !could:
		s.since = time.Time{}
		return 0
	case s.since.IsZero() || s.mark != mark:
		s.mark, s.since = mark, now
	}
	return now.Sub(s.since)
}

// shift excludes a period in which nothing could have moved.
func (s *stallTimer) shift(by time.Duration) {
	if !s.since.IsZero() {
		s.since = s.since.Add(by)
	}
}

// fault is a kind of stall.
type fault uint8

const (
	faultStep     fault = iota // a fetch or an offer that has begun does not end
	faultReader                // there is something to read and room for it, and no fetch ends
	faultOpen                  // the oldest open offset stays open
	faultCommit                // commits of the partition are not accepted, though the broker answers
	faultRounds                // of the group: the committer makes no rounds
	faultDrain                 // of the group: a generation that has ended is not released
	faultRoom                  // of the group: no fetch of ingress or a timer is given memory
	faultLaneRoom              // of the group: no fetch of a lane is given memory
	faults
)

// observation is the result of one look: for each kind of stall a mark that moves with progress, whether progress was
// possible, and what it waits for.
type observation struct {
	offset int64        // the oldest that is not settled
	owner  offset.Owner // of its job, in ingress
	marks  [faults]uint64
	could  [faults]bool
	waits  [faults]string
}

// note sets the observation of one kind.
func (o *observation) note(f fault, mark uint64, could bool, waits string) {
	o.marks[f], o.could[f], o.waits[f] = mark, could, waits
}

// stall is a finding of a stallDetector: no progress for longer than tolerated.
type stall struct {
	offset int64
	waits  string        // what it waits for
	idle   time.Duration // how long
	over   time.Duration // the part of idle beyond the tolerance
}

// stallDetector compares successive observations of one partition, or of the group as a whole. It is pure.
type stallDetector struct {
	name   string
	label  string // of the kind of partition, in metrics and the log
	timers [faults]stallTimer
	found  *stall // at the last look; nil if there is no stall
}

// tolerance is how long each kind of stall is tolerated.
type tolerance [faults]time.Duration

// look evaluates the observation at now and reports whether the verdict has changed: a stall has begun or is over.
func (d *stallDetector) look(now time.Time, o observation, t tolerance) (changed bool) {
	before := d.found
	d.found = nil
	for f := range o.marks {
		idle := d.timers[f].look(now, o.marks[f], o.could[f])
		if !o.could[f] || idle < t[f] {
			continue
		}
		if over := idle - t[f]; d.found == nil || over > d.found.over {
			d.found = &stall{offset: o.offset, waits: o.waits[f], idle: idle, over: over}
		}
	}
	return (before == nil) != (d.found == nil)
}

// shift excludes a period in which nothing could have moved.
func (d *stallDetector) shift(by time.Duration) {
	for f := range d.timers {
		d.timers[f].shift(by)
	}
}

// String describes the stall in one line.
func (d *stallDetector) String() string {
	return fmt.Sprintf("%s has stood still at offset %d for %s, waiting for %s",
		d.name, d.found.offset, d.found.idle.Round(time.Second), d.found.waits)
}
