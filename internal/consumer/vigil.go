package consumer

import (
	"fmt"
	"time"
)

// standstill measures for how long a mark has not moved while it could have. The zero value has seen nothing.
type standstill struct {
	mark  uint64
	since time.Time // when the mark was first seen where it is, able to move; zero while it cannot
}

// look notes the mark at now and returns for how long it has stood still.
func (s *standstill) look(now time.Time, mark uint64, could bool) time.Duration {
	switch {
	case !could:
		s.since = time.Time{}
		return 0
	case s.since.IsZero() || s.mark != mark:
		s.mark, s.since = mark, now
	}
	return now.Sub(s.since)
}

// shift leaves out a stretch of time in which nothing could have moved.
func (s *standstill) shift(by time.Duration) {
	if !s.since.IsZero() {
		s.since = s.since.Add(by)
	}
}

// fault is a kind of standstill.
type fault uint8

const (
	faultStep   fault = iota // a fetch or an offer that has begun does not end
	faultReader              // there is something to read and room for it, and no fetch ends
	faultOpen                // the oldest open offset stays open
	faultCommit              // commits of the partition are not accepted, though the broker answers
	faultRounds              // of the group: the committer does not come round
	faultDrain               // of the group: a generation that has ended is not let go
	faults
)

// sight is what is seen at one look: for each kind of standstill a mark that moves with progress, whether progress could
// be made, and what it would be.
type sight struct {
	offset int64 // the oldest that is not settled
	whose  whose // its job is, in ingress
	marks  [faults]uint64
	could  [faults]bool
	waits  [faults]string
}

// note fills in one kind.
func (s *sight) note(f fault, mark uint64, could bool, waits string) {
	s.marks[f], s.could[f], s.waits[f] = mark, could, waits
}

// stall is a standstill that has outlasted its patience.
type stall struct {
	offset int64
	waits  string        // what for
	idle   time.Duration // for how long
	over   time.Duration // the part of idle beyond the patience
}

// vigil watches one partition, or the group as a whole, from look to look. It is pure.
type vigil struct {
	name  string
	place string
	still [faults]standstill
	found *stall // the last look's; nil when all is well
}

// tolerance is how long each kind of standstill is borne.
type tolerance [faults]time.Duration

// look judges what is seen at now and reports whether the verdict is another than before: begun or over.
func (v *vigil) look(now time.Time, s sight, p tolerance) (changed bool) {
	before := v.found
	v.found = nil
	for f := range s.marks {
		idle := v.still[f].look(now, s.marks[f], s.could[f])
		if !s.could[f] || idle < p[f] {
			continue
		}
		if over := idle - p[f]; v.found == nil || over > v.found.over {
			v.found = &stall{offset: s.offset, waits: s.waits[f], idle: idle, over: over}
		}
	}
	return (before == nil) != (v.found == nil)
}

// String words what was found in one line.
func (v *vigil) String() string {
	return fmt.Sprintf("%s has stood still at offset %d for %s, waiting for %s",
		v.name, v.found.offset, v.found.idle.Round(time.Second), v.found.waits)
}
