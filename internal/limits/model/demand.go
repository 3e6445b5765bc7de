package model

import (
	"math"

	"github.com/pacer/pacer/internal/delivery"
)

// demand is the state of one quota during an ask.
type demand struct {
	spec      *delivery.Quota
	quota     *quota
	windows   []*window
	joint     delivery.Joint
	covers    bool // false: the quota is rolled out to others
	even      bool
	self      *rival
	wasOwed   bool    // units were kept for the daemon until now
	tight     *window // the one with the least room, the first of equals
	index     int     // of tight
	hard      int64   // what all windows can give
	soft      int64   // how many units of it may begin up to the horizon: less than hard only where spending is even
	share     int64   // what of them falls to the daemon
	look      delivery.Look
	keptUntil int64 // until when the rest is kept for others at least, if it is
	next      int64 // when a job refused for want of room will find it
}

// measure finds the window with the least room. A pace is soft, as that of a timeline: the first unit of a job must be within the
// horizon. The remaining room is hard: all of the job must fit.
func (q *demand) measure(t *taking) {
	hard, soft := int64(delivery.MaxGrant), int64(-1)
	for i, w := range q.windows {
		left := w.remaining()
		hard = min(hard, left)
		if q.even {
			left = w.paced(t.now, t.ask.Horizon, q.wasOwed)
		}
		if soft < 0 || left < soft {
			q.tight, q.index, soft = w, i, left
		}
	}
	q.hard, q.soft = hard, min(soft, delivery.MaxGrant)
}

// opens is when the window can grant a job of the weight, which its limit allows; 0 if it can now.
func (q *demand) opens(t *taking, w *window, weight int64) (at int64) {
	if w.remaining() < weight {
		at = w.freeAt(weight)
	}
	if first := w.pace.Micros() - t.ask.Horizon; q.even && first > t.now {
		at = max(at, first)
	}
	return at
}

// opensAt is when all windows can grant a unit, but for those whose limit is 0; 0 if they can now.
func (q *demand) opensAt(t *taking) (at int64) {
	for _, w := range q.windows {
		if w.limit > 0 {
			at = max(at, q.opens(t, w, 1))
		}
	}
	return at
}

// growsAt is when there is more room; some may fall to the daemon.
func (q *demand) growsAt(t *taking) int64 {
	w := q.tight
	if left := w.remaining(); q.even {
		if n := w.paced(t.now, t.ask.Horizon, q.wasOwed); n < left {
			at, rate := w.pacing(t.now, q.wasOwed)
			return at.Advance(n, rate).Micros() - t.ask.Horizon
		}
	}
	if w.count == 0 || w.limit == 0 {
		return math.MaxInt64
	}
	return w.freeAt(w.remaining() + 1)
}

// comesAgain reports whether what the ask's campaign needs has come again by the time it asks next: at the pace of an even quota, or as a
// fixed window begins again.
func (q *demand) comesAgain(now, next int64) bool {
	w := q.tight
	if q.even && (next-now-1)/max(1, w.span/max(1, w.limit)) >= q.joint.All-q.joint.Left {
		return true
	}
	return w.reset > 0 && next >= w.reset
}
