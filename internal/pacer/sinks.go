package pacer

import (
	"cmp"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// sinkState is the scheduler's state of one sink.
type sinkState struct {
	id       string
	max      int      // calls that may be in flight
	calls    calls    // that are
	granted  int64    // slots that the campaigns of this sink have
	asked    int64    // slots that takes in flight may bring
	full     []*queue // queues whose slot came due while no call was free, in order
	fullAt   int64    // local time when there was last one; 0: never
	breaker  breaker
	destined bool // it has destinations of its own
	moving   bool // other daemons are being told of a change of its gate

	maxRetryAfter time.Duration // how long a wait that the destination asks for is believed
	quietUntil    int64         // local time before which no further answer about waits or credentials is logged
	toldClosed    int64         // local time before which no further closed destination is logged
	followUps     followUps
}

func (s *sinkState) leave(q *queue) {
	s.full = slices.DeleteFunc(s.full, func(o *queue) bool { return o == q })
}

// sinkOf is the state of the campaign's sink, nil when no such sink is configured.
func (sl *slots) sinkOf(c *delivery.Campaign) *sinkState {
	id, ok := sl.opt.Sinks.Resolve(c.Sink)
	if !ok {
		return nil
	}
	return sl.sinkByID(id)
}

func (sl *slots) sinkByID(id string) *sinkState {
	for _, s := range sl.sinks { // there are few
		if s.id == id {
			return s
		}
	}
	n, _ := sl.opt.Sinks.Capacity(id)
	s := &sinkState{id: id, max: max(1, n), maxRetryAfter: cmp.Or(sl.opt.MaxRetryAfter[id], defaultMaxRetryAfter),
		destined: sl.opt.Destinations(id) != nil, followUps: newFollowUps(sl.opt.FollowUps[id])}
	sl.sinks = append(sl.sinks, s)
	return s
}

// wake lets the queues that wait for a free call try again.
func (sl *slots) wake(s *sinkState) {
	for free := s.max - s.calls.inFlight; free > 0 && len(s.full) > 0; {
		q := s.full[0]
		s.full = s.full[1:]
		q.blocked = false
		sl.schedule(q)
		if q.slotIndex >= 0 {
			free--
		}
	}
	if len(s.full) == 0 {
		s.full = nil
	}
}
