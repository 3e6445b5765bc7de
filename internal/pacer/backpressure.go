package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// maxLaneUnits bounds the units of one campaign held here that could also wait where they were
// read, unless it sends as many in a tenth of a second.
const maxLaneUnits = 2048

// laneCapacity is how many units of a campaign may wait here that could also wait where they were read: two seconds' worth up to
// maxLaneUnits, or a tenth of a second's worth if that is more, since room is told of once in a few quanta. It is less if there
// are so many campaigns that these would not fit into the memory (see ahead), and after yielding.
func (a *ahead) laneCapacity(q *queue) int64 {
	room := a.units(q.campaign.Rate)
	if q.window > 0 {
		return min(room, q.window)
	}
	return room
}

const (
	// soonWithin is within what time jobs are sent that are not worth a trip through a lane.
	soonWithin = 2 * time.Second
	// relaySpeed is how many jobs a daemon relays in a second, as measured, about. What is sent no slower may stop its partition:
	// relaying it would let those behind it through no sooner, and writing a job to a lane and reading it again costs
	// several times what sending it costs. What is sent more slowly must not, or those behind it would wait for its rate.
	relaySpeed = 10_000
	// refuseFor bounds how long intake waits for jobs that seem to be sent soon and are not, and refuseAgain how long after that
	// it is not tried again.
	refuseFor, refuseAgain = time.Second, 5 * time.Second
)

// soon reports whether the units ahead are sent within a moment, as far as the campaign's rate and the calls of its sink go.
func (q *queue) soon(ahead int64, now instant) bool { return ahead <= q.sentIn(soonWithin, now) }

// fast reports whether the units ahead are sent soon, and as fast as they would be relayed.
func (q *queue) fast(ahead int64, now instant) bool {
	sent := q.sentIn(soonWithin, now)
	return ahead <= sent && sent >= relaySpeed*int64(soonWithin/time.Second)
}

// sentIn is how many units may be sent within a time, as far as the campaign's rate and the calls of its sink go; -1 if
// its turn is later.
func (q *queue) sentIn(within time.Duration, now instant) int64 {
	s, calls := q.sink, int64(0)
	if s == nil || now.until(max(q.turnAt, q.opens())) > within {
		return -1
	}
	if calls = int64(s.max); q.campaign.MaxInFlight > 0 {
		calls = min(calls, int64(q.campaign.MaxInFlight))
	}
	return min(q.campaign.Rate.UnitsIn(within)/q.competitors, calls*within.Microseconds()/max(s.calls.lasts, 1))
}

// refuses reports whether a job of ingress that does not fit, for want of memory alone, is refused although its campaign uses
// lanes: when what is before it is sent as fast as it would be relayed. Its partition is not read meanwhile. When that takes
// longer, jobs are relayed.
func (q *queue) refuses(j *delivery.Job, maxBytes int64, now instant) bool {
	ahead := q.ahead(rank(j))
	if j.From != delivery.FromIngress || now.local < q.behindUntil || q.size+j.Size <= maxBytes || !q.fast(ahead, now) {
		return false
	}
	if q.refusesSince == 0 || now.local-q.refusesSince > refuseAgain.Microseconds() {
		q.refusesSince = now.local
	}
	return !q.refusedLong(now)
}

// refusedLong reports whether intake has waited for the queue for too long.
func (q *queue) refusedLong(now instant) bool {
	return q.refusesSince != 0 && now.local-q.refusesSince > refuseFor.Microseconds()
}

// far reports whether the campaign's turn is so far off that its jobs may not wait for it here.
func (q *queue) far(openAge time.Duration, now instant) bool {
	turn := q.turnAt
	if q.sink != nil {
		turn = max(turn, q.opens())
	}
	return now.until(turn) > openAge
}

// makeCapacity tells the lanes whose jobs were refused that the queue has room again, once it is half empty and its turn is
// near.
func (p *Pacer) makeCapacity(q *queue, now instant) {
	if len(q.waiting) == 0 || q.far(p.opt.MaxOpenAge, now) {
		return
	}
	room := p.maintenance.ahead.laneCapacity(q)
	switch {
	case q.refusesSince == 0:
	case q.size <= p.opt.MaxQueueBytes/8*7:
		q.refusesSince = 0
		q.grant(q.id, room)
		return
	case q.refusedLong(now):
		q.grant(q.id, room) // they are relayed
		return
	}
	if q.units > room/2 || q.size > p.opt.MaxQueueBytes/2 {
		return
	}
	q.grantLanes(room, p.opt.MaxQueueBytes, now)
}

// grantLanes tells lanes of the room that is left of room units, less what was told and is still to come, and less what there is
// no memory for.
func (q *queue) grantLanes(room, maxBytes int64, now instant) {
	if q.units > 0 {
		q.unit = max(1, q.size/q.units)
	}
	left := room - q.units
	if q.unit > 0 {
		left = min(left, max(1, (maxBytes-q.size)/q.unit))
	}
	if now.local < q.until {
		if left -= q.coming; left < (room+1)/2 && left < leastGranted {
			return
		}
	} else {
		q.coming = 0
	}
	told := q.grant(q.id, left)
	q.coming += told
	soon := time.Duration(float64(time.Second) * float64(room) / 4 / max(q.campaign.Rate.PerSecond(), 1))
	q.until = now.in(min(max(soon, leastComing), mostComing))
}

// widen lets more jobs wait in a queue that has yielded, each time that it has sent half of them: a campaign that sends
// has its whole room again soon, and one that does not send keeps what it has.
func (q *queue) widen() {
	if q.window == 0 || q.units > q.window/2 {
		return
	}
	if q.window *= 2; q.window >= maxLaneUnits {
		q.window = 0
	}
}

// Yield gives jobs of lanes back to them, because a lane that has something to read waits for memory: those of campaigns whose turn is far
// off, all but one of each; or, if there are none, the later half of the jobs of every campaign. It is called again while lanes wait.
func (p *Pacer) Yield() { p.inbox.do(p.yield) }

// maxYield bounds the jobs given back in one turn: slots come due in between.
const maxYield = 512

func (p *Pacer) yield(now instant) {
	if p.maintenance.yielding {
		return
	}
	var far, all []*queue
	for _, q := range p.queues.list {
		n := q.len() - q.direct
		if n > 0 {
			all = append(all, q)
		}
		if n > 1 && q.far(p.opt.MaxOpenAge, now) {
			far = append(far, q)
		}
	}
	if len(far) > 0 {
		p.yieldSome(far, func(int) int { return 1 }, false, now)
	} else {
		p.yieldSome(all, func(jobs int) int { return jobs / 2 }, true, now)
	}
}

// yieldSome gives back the jobs of each queue but for those to keep, and goes on in the next turn. narrows tells that these are
// all that may wait there until the campaign sends.
func (p *Pacer) yieldSome(queues []*queue, keep func(jobs int) int, narrows bool, now instant) {
	for most := maxYield; len(queues) > 0 && most > 0; queues = queues[1:] {
		q := queues[0]
		n := q.len() - q.direct
		if n == 0 {
			continue
		}
		most -= p.giveLanes(q, keep(n), now)
		if narrows {
			q.window = max(1, q.units)
		}
	}
	if p.maintenance.yielding = len(queues) > 0; p.maintenance.yielding {
		p.inbox.do(func(now instant) { p.yieldSome(queues, keep, narrows, now) })
	}
}

// giveLanes gives the jobs of lanes back, except for the first keep of them and those that have a slot, and returns how
// many.
func (p *Pacer) giveLanes(q *queue, keep int, now instant) int {
	jobs := takeOut(q, func(ahead int64, j *delivery.Job) bool {
		if j.From != delivery.FromLane {
			return false
		}
		keep--
		return keep < 0 && ahead >= q.granted
	})
	for _, j := range slices.Backward(jobs) { // the last first: a lane gives them back from its end
		p.carryOut(j, placement{where: stays}, now)
	}
	return len(jobs)
}
