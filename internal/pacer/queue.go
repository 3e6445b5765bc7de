package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// queue is one campaign in one daemon: its jobs (the front window) and the slots it holds. It is pure: every time
// is an argument, and only the scheduler goroutine touches it.
//
// Jobs leave from the front, in the order of their ranks. Slots are used in order; a job of weight w uses up the next w of
// them and goes at the first, which keeps the bound even when the jobs at the front have changed since the slots were
// asked for.
type queue struct {
	id       string
	campaign *delivery.Campaign // nil while the campaign is unknown; replaced at every snapshot that changes it
	sink     *sinkState         // nil while the campaign's sink is not configured

	parts   [ranks]fifo
	ranked  [ranks]int64 // sum of the weights of the jobs in each part
	units   int64        // and of all of them
	heavy   int          // jobs with a weight above 1
	ingress int          // jobs that were not read from a lane, and so must not stay open for long
	oldest  time.Time    // no job of those was read before

	grants   []delivery.Grant // held slots in order; First advances as they are used
	held     int64            // sum of Units of grants
	lastSlot int64            // store time of the last slot used or given up
	kept     int64            // how far in the past a slot may have been granted that is no credit, in microseconds

	asking      int        // takes (at most one) and refunds of this campaign under way; it asks for nothing meanwhile
	asked       *sinkState // for which the take under way asks
	mayBring    int64      // about how many slots it may bring
	askAt       int64      // local time of the next ask
	askIndex    int        // in the ask heap, -1 when not there
	slotIndex   int        // in the slot heap, -1 when not there
	blocked     bool       // its slot came due while the sink was full; the sink's list has it
	turnAt      int64      // local time before which no further slot can come, as the last reply said; 0 when unknown
	competitors int64
	inFlight    int
	returned    bool  // the last job that went, but for those of high priority, had returned
	failures    int   // consecutive calls that failed for the destination's own reasons
	failedAt    int64 // local time of the first of them
	restsUntil  int64 // local time until which nothing is sent, since failures were this campaign's alone; 0: it does not rest

	place   int                          // in the scheduler's list of queues
	waiting map[delivery.Source]struct{} // lanes with jobs that were refused for want of room
}

// Ranks of jobs. High priority goes first. A job that has waited for its time, in a timer or here, has had its wait: behind
// a full window of others it would come late for good, or not fit and go to the end of its campaign's lane. Those take
// turns with the others, since many that fail again and again must not keep back the rest.
const (
	rankHigh     = iota // high priority
	rankReturned        // from a timer, or tried before
	rankOther
	ranks
)

func rank(j *delivery.Job) int {
	switch {
	case j.Priority == delivery.PriorityHigh:
		return rankHigh
	case j.From == delivery.FromTimer, j.From == delivery.FromIngress && j.Attempt > 0:
		return rankReturned
	}
	return rankOther
}

func newQueue(id string) *queue {
	return &queue{id: id, askIndex: -1, slotIndex: -1, competitors: 1}
}

// idle tells whether nothing of the queue need be remembered.
func (q *queue) idle(now int64) bool {
	return q.empty() && len(q.waiting) == 0 && q.inFlight == 0 && q.held == 0 && q.asking == 0 && q.askIndex < 0 &&
		now-q.askAt > idleQueue.Microseconds()
}

func (q *queue) empty() bool { return q.len() == 0 }

func (q *queue) len() (n int) {
	for i := range q.parts {
		n += q.parts[i].len()
	}
	return n
}

// ahead is about the sum of the weights of the jobs that go before a new one of the rank.
func (q *queue) ahead(rank int) int64 {
	switch high, returned := q.ranked[rankHigh], q.ranked[rankReturned]; rank {
	case rankHigh:
		return high
	case rankReturned:
		return high + returned + min(returned, q.ranked[rankOther])
	}
	return q.units
}

func (q *queue) push(j *delivery.Job) {
	q.parts[rank(j)].pushBack(j)
	q.count(j, 1)
}

// pushFront puts back a job that was taken out before its time.
func (q *queue) pushFront(j *delivery.Job) {
	q.parts[rank(j)].pushFront(j)
	q.count(j, 1)
}

// turn is the rank of the job that goes after so many of each rank, of which the last below high priority had returned or
// not. There must be one.
func (q *queue) turn(passed [ranks]int, returned bool) int {
	left := func(rank int) bool { return q.parts[rank].len() > passed[rank] }
	switch {
	case left(rankHigh):
		return rankHigh
	case !left(rankOther) || left(rankReturned) && !returned:
		return rankReturned
	}
	return rankOther
}

// first is the part from which the next job goes; the queue must not be empty.
func (q *queue) first() *fifo { return &q.parts[q.turn([ranks]int{}, q.returned)] }

// head is the job that goes next; the queue must not be empty.
func (q *queue) head() *delivery.Job { return q.first().at(0) }

func (q *queue) pop() *delivery.Job {
	j := q.first().popFront()
	if r := rank(j); r != rankHigh {
		q.returned = r == rankReturned
	}
	q.count(j, -1)
	return j
}

func (q *queue) count(j *delivery.Job, sign int) {
	q.units += int64(sign) * j.Weight
	q.ranked[rank(j)] += int64(sign) * j.Weight
	if j.Weight > 1 {
		q.heavy += sign
	}
	if j.From == delivery.FromLane {
		return
	}
	if sign > 0 && (q.ingress == 0 || j.ReadAt.Before(q.oldest)) {
		q.oldest = j.ReadAt
	}
	q.ingress += sign
}

// filter keeps the jobs for which keep returns true. ahead is the sum of the weights of the jobs that go before.
func (q *queue) filter(keep func(ahead int64, j *delivery.Job) bool) {
	var ahead int64
	pass := func(_ int, j *delivery.Job) bool {
		ok := keep(ahead, j)
		ahead += j.Weight
		if !ok {
			q.count(j, -1)
		}
		return ok
	}
	for i := range q.parts {
		q.parts[i].filter(pass)
	}
}

// each calls f for the jobs in the order in which they go, if none come, until f returns false.
func (q *queue) each(f func(j *delivery.Job) bool) {
	var passed [ranks]int
	returned := q.returned
	for range q.len() {
		r := q.turn(passed, returned)
		if !f(q.parts[r].at(passed[r])) {
			return
		}
		passed[r]++
		if r != rankHigh {
			returned = r == rankReturned
		}
	}
}

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

// next calls f for the first jobs that have no slots yet, at most n.
func (q *queue) next(n int, f func(j *delivery.Job)) {
	covered := q.held
	q.each(func(j *delivery.Job) bool {
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

// heldUntil is the store time of the latest slot this daemon was granted and has not given back, 0 for none.
func (q *queue) heldUntil() int64 {
	if n := len(q.grants); n > 0 {
		g := q.grants[n-1]
		return g.First.Advance(g.Units-1, g.Rate).Micros()
	}
	return q.lastSlot
}

// add notes granted slots.
func (q *queue) add(g delivery.Grant) {
	if g.Units > 0 {
		q.grants = append(q.grants, g)
		q.held += g.Units
	}
}

// due is the store time at which the first slot, which must be held, comes due. The credit of a burst lies in the past
// and is due when it was granted, or just before: slots may be granted a little late.
func (q *queue) due() int64 {
	g := &q.grants[0]
	return max(g.First.Micros(), g.GrantedAt-q.kept)
}

// use takes the next n slots away, which must be held. What counts for quotas is returned, without a rate: it can be
// handed back to them, though not to the timeline.
func (q *queue) use(n int64) (counted []delivery.Grant) {
	for n > 0 {
		g := &q.grants[0]
		k := min(n, g.Units)
		if c := g.From.Campaign; c != nil && len(c.Quotas) > 0 {
			counted = append(counted, delivery.Grant{Units: k, GrantedAt: g.GrantedAt, Revision: g.Revision, From: g.From})
		}
		q.lastSlot = g.First.Advance(k-1, g.Rate).Micros()
		g.First = g.First.Advance(k, g.Rate)
		g.Units -= k
		q.held -= k
		n -= k
		if g.Units == 0 {
			q.grants = slices.Delete(q.grants, 0, 1) // there are two or three: their memory is worth keeping
		}
	}
	return counted
}

// handBack gives up all held slots and returns them for a refund.
func (q *queue) handBack() []delivery.Grant {
	if q.held == 0 {
		return nil
	}
	grants := make([]delivery.Grant, 0, len(q.grants))
	for i := len(q.grants) - 1; i >= 0; i-- { // from the end of the timeline, so that each is its end in turn
		grants = append(grants, q.grants[i])
	}
	q.grants, q.held = nil, 0
	return grants
}

// lateBy is how late, in microseconds, a slot of the given spacing may be handed to its sink: three quarters of the
// configured tolerance, or of a tenth of the spacing where that is longer, since a tenth of a unit does not move the
// bound. The last quarter is for the way from there to the wire, on which a busy machine may let time pass, too. Quota
// windows are widened by the plain tolerance only, so under a quota that is all there is.
func (q *queue) lateBy(tolerance, spacing int64) int64 {
	if len(q.campaign.Quotas) == 0 {
		tolerance = max(tolerance, spacing/10)
	}
	return tolerance * 3 / 4
}
