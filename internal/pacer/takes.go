package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	maxTakes = 4    // takes in flight at once, while they last no longer than quickly
	maxItems = 1024 // items of one take: a longer one has its answers later, and they take longer to be noted
	fewItems = 8    // so few campaigns need not be gathered: after a take of them, the next may follow sooner
	quickly  = latency(100_000)
	// recoveredAfter is how long no take must have failed before the store counts as answering again. If one of several
	// shards does not answer, only the takes that need it fail.
	recoveredAfter = time.Second
	maxBackOff     = time.Second / 4 // between takes while the limiter does not answer
)

// takes are the queues that ask for slots, and their takes. It is pure; times are local ones, in microseconds.
type takes struct {
	asks      timeHeap[*queue] // by the time of their next ask
	gap       int64            // the least time between two takes of many items: campaigns that come due in it ask together
	underWay  int
	lasts     latency // of a take
	last      int64   // when the last take was made
	lastItems int

	outage     retry.Outage // of the limiter
	failedAt   int64        // when a take last failed
	answeredAt int64        // when one was last answered
}

func newTakes(gap time.Duration) takes {
	return takes{gap: gap.Microseconds(), asks: timeHeap[*queue]{index: func(q *queue) *int { return &q.ask.index }}}
}

// want adds the queue to those that ask, unless it is there or its reply is still to come.
func (t *takes) want(q *queue) {
	if q.ask.index < 0 && q.ask.busy == 0 && q.units > q.granted {
		t.asks.push(q, q.ask.at)
	}
}

// askLater lets the queue ask again at the local time at.
func (t *takes) askLater(q *queue, at int64) {
	q.ask.at = at
	if q.ask.index >= 0 {
		t.asks.set(q, at)
		return
	}
	t.want(q)
}

// from is when the next take may be made, if not too many are under way.
func (t *takes) from() int64 {
	if t.lastItems <= fewItems {
		return t.last + t.gap/4
	}
	return t.last + t.gap
}

// full reports whether no further take may be made now. Where takes last long, they wait for each other at the store. More of them would last
// longer than the store is waited for, as if it did not answer.
func (t *takes) full() bool { return t.underWay >= max(1, int(maxTakes*quickly/max(quickly, t.lasts))) }

func (t *takes) ready(now int64) bool { return !t.full() && now >= t.from() }

// next is when a take is next to be made; ok is false while no queue asks, or the end of a take has to be awaited.
func (t *takes) next() (at int64, ok bool) {
	if t.asks.len() == 0 || t.full() {
		return 0, false
	}
	return max(t.asks.first().at, t.from()), true
}

func (t *takes) begin(items int, now int64) {
	t.last, t.lastItems = now, items
	t.underWay++
}

// recovered reports whether an outage has ended by now: the last take was answered, and none has failed for a while. It is asked also
// while no takes are made: after the first answer there may be nothing to ask for.
func (t *takes) recovered(now int64) (over bool) {
	if t.outage.Failures() == 0 || t.answeredAt <= t.failedAt || now <= t.failedAt+recoveredAfter.Microseconds() {
		return false
	}
	_, over = t.outage.Worked()
	return over
}

// failed records a take that was not answered, and returns the pause after which its queues ask
// again.
func (t *takes) failed(now int64) (pause time.Duration, first bool) {
	first = t.outage.Failed()
	t.failedAt = now
	pauses := retry.Backoff{Initial: 4 * time.Duration(t.gap) * time.Microsecond, Max: maxBackOff}
	return pauses.Delay(t.outage.Failures()), first
}

func (q *queue) asked(a *delivery.Ask, now int64) {
	q.ask.last = now
	q.ask.busy++
	q.ask.mayBring = min(a.Want, q.campaign.Rate.UnitsIn(time.Duration(a.Horizon)*time.Microsecond)+1)
	q.ask.sink = q.sink
	q.sink.asked += q.ask.mayBring
}

func (q *queue) answered() {
	q.ask.busy--
	q.ask.sink.asked -= q.ask.mayBring
}
