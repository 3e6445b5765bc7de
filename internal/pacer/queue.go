package pacer

import (
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// queue is one campaign in one daemon: its jobs (the front window), the slots that were granted for them, and its circuit
// breaker. Only the scheduler goroutine touches it.
type queue struct {
	id       string
	campaign *delivery.Campaign // nil while the campaign is unknown; replaced at every snapshot that changes it
	sink     *sinkState         // nil while the campaign's sink is not configured

	ranked
	timeline
	steps   fifo[*delivery.Job] // jobs whose next step may be made; see followUps
	circuit breaker
	ask     asking

	slotIndex   int   // in the slot heap, -1 when not there
	blocked     bool  // its slot came due while the sink was full; the sink's list has it
	turnAt      int64 // local time before which no further slot can come, by the last reply; 0 when unknown
	competitors int64 // daemons that compete for the campaign's slots, this one included
	calls       calls
	behindUntil int64 // local time until which its jobs of ingress go to lanes, since others have

	place int // in the list of queues
	intake
}

// asking is when a queue asks for slots, and its current ask.
type asking struct {
	busy     int        // takes (at most one) and refunds of the campaign in flight; it asks for nothing meanwhile
	sink     *sinkState // for which the take under way asks
	mayBring int64      // about how many slots it may bring
	at       int64      // local time of the next ask
	last     int64      // of the last one
	short    bool       // it was for fewer slots than there were jobs, for want of calls
	paced    bool       // it is the campaign's rate that allows nothing before turnAt
	index    int        // in the ask heap, -1 when not there
}

func newQueue(id string) *queue {
	return &queue{id: id, ask: asking{index: -1}, slotIndex: -1, competitors: 1}
}

// idleQueue is how long an empty queue is kept.
const idleQueue = time.Minute

// idle reports whether the queue has no state that must be kept.
func (q *queue) idle(now instant) bool {
	return q.empty() && len(q.waiting) == 0 && q.calls.inFlight == 0 && q.granted == 0 && q.ask.busy == 0 && q.ask.index < 0 &&
		now.local-q.ask.at > idleQueue.Microseconds() && q.steps.len() == 0 && (q.campaign == nil || !q.remembers(now.local))
}

// rememberedFor is how long it matters that jobs of a campaign have failed or were refused, when none comes any more.
const rememberedFor = 24 * time.Hour

// remembers reports whether there is something to be known of jobs that have gone: the campaign is held, its destination has asked to wait,
// or some have failed, and may be tried again.
func (q *queue) remembers(now int64) bool {
	c := &q.circuit
	failed := c.failures > 0 || c.refusals.failures > 0
	return c.isHeld() || c.open(now) || failed && now-max(c.last, c.refusals.last) < rememberedFor.Microseconds()
}

// standing reports whether the jobs may be sent at now; the campaign must be known.
func (q *queue) standing(now instant) standing { return standingOf(q.campaign, q.sink, now.wall) }

// opens is the local time until which nothing of the campaign is sent to its sink.
func (q *queue) opens() int64 { return max(q.sink.breaker.openUntil, q.circuit.openUntil) }

// turn is the local time before which none of its jobs is sent, as far as that is known.
func (q *queue) turn() int64 {
	if q.sink == nil {
		return q.turnAt
	}
	return max(q.turnAt, q.opens())
}

// settleAll is room for all jobs: they need no slots any more.
const settleAll = math.MaxInt32

// maxWeights bounds the list of weights in one ask; further jobs are asked for next time.
const maxWeights = 256

// weights lists the weights of the jobs that have no slots yet, nil when all are 1.
func (q *queue) weights() (list []int64) {
	if q.heavy == 0 {
		return nil
	}
	q.next(maxWeights, func(j *delivery.Job) { list = append(list, j.Weight) })
	return list
}

// maxBytes bounds the list of payload lengths in one ask, like maxWeights.
const maxBytes = 4096

// bytes lists the payload lengths of the jobs that have no slots yet, nil unless a quota of the campaign counts them.
func (q *queue) bytes() (list []int64) {
	for _, quota := range q.campaign.Quotas {
		if quota.Unit == delivery.UnitBytes {
			q.next(maxBytes, func(j *delivery.Job) { list = append(list, int64(len(j.Payload))) })
			break
		}
	}
	return list
}

// goes is the job that goes at the next slot; the queue must be ready.
func (q *queue) goes() *delivery.Job {
	if allowed := &q.parts[rankAllowed]; allowed.len() > 0 {
		return allowed.at(0)
	}
	return q.candidate()
}

// candidate is the job that is chosen next; there must be one that is not.
func (q *queue) candidate() *delivery.Job {
	head := q.head()
	if q.sums[rankBound] == 0 && head.Attempt > 0 && q.untried > 0 && (q.circuit.failures >= silentFailures || q.circuit.tripped || q.sink != nil && q.sink.breaker.tripped) {
		return q.untriedBefore(head)
	}
	return head
}

// untriedBefore is the first job without an attempt, which probes a breaker: in a long outage no job uses up its attempts while others
// come. It is the head if there is none that weighs as little.
func (q *queue) untriedBefore(head *delivery.Job) *delivery.Job {
	first := head
	q.each(func(j *delivery.Job) bool {
		if j.Attempt == 0 && j.Weight <= head.Weight {
			first = j
		}
		return first == head
	})
	return first
}

// next calls f for the first jobs that have no slots yet, at most n. Slots are for those that are chosen first.
func (q *queue) next(n int, f func(j *delivery.Job)) {
	covered := q.granted
	q.all(func(j *delivery.Job) bool {
		if covered >= j.Weight {
			covered -= j.Weight
			return true
		}
		covered = 0
		f(j)
		n--
		return n > 0
	})
}

type queues struct {
	byID map[string]*queue
	list []*queue // the same, in any order

	early int64 // see timeline
}

func (l *queues) add(id string) *queue {
	q := newQueue(id)
	q.place, q.early = len(l.list), l.early
	l.byID[id], l.list = q, append(l.list, q)
	return q
}

// drop removes an empty queue; the last of the list takes its place.
func (l *queues) drop(q *queue) {
	last := len(l.list) - 1
	l.list[q.place] = l.list[last]
	l.list[q.place].place = q.place
	l.list[last] = nil
	l.list = l.list[:last]
	delete(l.byID, q.id)
}
