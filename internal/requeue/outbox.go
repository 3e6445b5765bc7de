package requeue

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// item is a job on its way to a destination.
type item struct {
	job  *delivery.Job
	to   delivery.Destination
	size int // estimated bytes of the record
	cut  cut
	// unknown is set while the outcome of the last produce call is not known: the record may have been written.
	unknown bool
}

// queue holds what one source has to write. While busy, one worker owns dirty; all else is guarded by the relay's
// lock.
type queue struct {
	source delivery.Source
	retry  []*item // refused or in doubt: written again before anything else
	urgent fifo    // timers and dead letters
	lane   fifo

	busy      bool      // a worker serves it; it is not in the ring
	listed    bool      // it is in the ring
	dirty     bool      // settled jobs may not be committed yet: flush before the next batch
	failing   bool      // the last batch failed
	failures  int       // in a row, for the back-off
	notBefore time.Time // back-off
}

func (q *queue) empty() bool { return q.len() == 0 }

func (q *queue) len() int { return len(q.retry) + q.urgent.len() + q.lane.len() }

// servable tells whether there is something to write while lanes are held or not.
func (q *queue) servable(held bool) bool {
	return len(q.retry) > 0 || q.urgent.len() > 0 || !held && q.lane.len() > 0
}

// take removes the next batch: what has to be written again and nothing else, or else urgent items before those
// for lanes, at most maxJobs and, beyond the first item, maxBytes.
func (q *queue) take(maxJobs, maxBytes int, held bool) []*item {
	if len(q.retry) > 0 {
		batch := q.retry
		q.retry = nil
		return batch
	}
	var batch []*item
	bytes := 0
	pull := func(f *fifo) {
		for f.len() > 0 && len(batch) < maxJobs {
			it := f.peek()
			if len(batch) > 0 && bytes+it.size > maxBytes {
				return
			}
			bytes += it.size
			batch = append(batch, f.pop())
		}
	}
	pull(&q.urgent)
	if !held && q.urgent.len() == 0 {
		pull(&q.lane)
	}
	return batch
}

// outbox holds the queues of all sources and the ring in which they take turns. It does no I/O; every method is
// called with the relay's lock held. A closed outbox takes nothing any more: Drain closes it, so that whatever a
// worker still brings back is dropped and stays open.
type outbox struct {
	queues  map[delivery.Source]*queue
	ring    []*queue // not busy, not empty; the first has waited longest
	queued  int
	failing int // queues whose last batch failed

	turns   map[*turn]struct{} // taken and not given back
	noLanes bool               // being drained: lane items are dropped
	closed  bool
	idle    chan struct{} // closed once closed and no turn is sending
	inDoubt int           // dropped although the broker may have written them
}

func newOutbox() *outbox {
	return &outbox{
		queues: make(map[delivery.Source]*queue),
		turns:  make(map[*turn]struct{}),
		idle:   make(chan struct{}),
	}
}

// maxIdleSources is how many sources are remembered before those with nothing to write are forgotten. Sources of
// partitions that were lost would otherwise pile up. What is forgotten is at most that a batch long ago was not
// flushed, which the source's own commits have made up for.
const maxIdleSources = 1024

func (o *outbox) put(it *item) {
	if o.closed || o.noLanes && it.to.Kind == delivery.ToLane {
		return
	}
	q := o.queues[it.job.Source]
	if q == nil {
		if len(o.queues) >= maxIdleSources {
			o.forgetIdle()
		}
		q = &queue{source: it.job.Source}
		o.queues[it.job.Source] = q
	}
	if it.to.Kind == delivery.ToLane {
		q.lane.push(it)
	} else {
		q.urgent.push(it)
	}
	o.queued++
	o.list(q)
}

func (o *outbox) forgetIdle() {
	for s, q := range o.queues {
		if !q.busy && q.empty() {
			delete(o.queues, s)
		}
	}
}

func (o *outbox) list(q *queue) {
	if !q.busy && !q.listed && !q.empty() {
		q.listed = true
		o.ring = append(o.ring, q)
	}
}

// next hands out the queue whose turn it is, or else how long to wait before one can be served (0: until
// something is put). Lanes are held until heldUntil.
func (o *outbox) next(now, heldUntil time.Time) (*queue, time.Duration) {
	held := now.Before(heldUntil)
	wait := time.Duration(0)
	soonest := func(t time.Time) {
		if d := t.Sub(now); wait == 0 || d < wait {
			wait = d
		}
	}
	for i, q := range o.ring {
		if now.Before(q.notBefore) {
			soonest(q.notBefore)
			continue
		}
		if !q.servable(held) {
			soonest(heldUntil)
			continue
		}
		o.ring = append(o.ring[:i], o.ring[i+1:]...)
		q.listed, q.busy = false, true
		return q, 0
	}
	return nil, wait
}

// take removes the next batch of the turn's queue. From now on the turn answers for what was in doubt before.
func (o *outbox) take(t *turn, maxBytes int, held bool) []*item {
	if o.closed {
		return nil
	}
	items := t.q.take(maxBatchJobs, maxBytes, held)
	o.queued -= len(items)
	t.open = doubtful(items)
	o.turns[t] = struct{}{}
	return items
}

// giveBack ends a turn. What failed is written again after the back-off.
func (o *outbox) giveBack(t *turn, now time.Time, backoff time.Duration) {
	delete(o.turns, t)
	q := t.q
	q.busy = false
	if o.closed {
		o.drop(t.failed)
		o.maybeIdle()
		return
	}
	if len(t.failed) > 0 {
		q.retry = t.failed
		o.queued += len(t.failed)
	}
	q.notBefore = now.Add(backoff)
	o.list(q)
}

// failed notes whether the queue's last batch failed.
func (o *outbox) failed(q *queue, failed bool) {
	switch {
	case failed && !q.failing:
		o.failing++
	case !failed && q.failing:
		o.failing--
	}
	q.failing = failed
}

// closeLanes drops what waits for a lane and has not been tried yet.
func (o *outbox) closeLanes() {
	o.noLanes = true
	var ring []*queue
	for _, q := range o.queues {
		o.queued -= q.lane.len()
		q.lane = fifo{}
	}
	for _, q := range o.ring {
		if q.listed = !q.empty(); q.listed {
			ring = append(ring, q)
		}
	}
	o.ring = ring
}

// serving tells whether a worker has a queue in hand, before its turn has begun or after.
func (o *outbox) serving() bool {
	for _, q := range o.queues {
		if q.busy {
			return true
		}
	}
	return false
}

// close drops everything that is not being sent.
func (o *outbox) close() {
	if o.closed {
		return
	}
	o.closed = true
	for _, q := range o.queues {
		o.drop(q.retry)
		q.retry, q.urgent, q.lane = nil, fifo{}, fifo{}
	}
	o.queued, o.ring = 0, nil
	o.maybeIdle()
}

func (o *outbox) drop(items []*item) { o.inDoubt += doubtful(items) }

// doubtful counts the items that the broker may have written already.
func doubtful(items []*item) (n int) {
	for _, it := range items {
		if it.unknown {
			n++
		}
	}
	return n
}

// enter registers a turn as sending, until it is given back; false means that the outbox was closed and nothing
// more may be sent.
func (o *outbox) enter(t *turn) bool {
	if o.closed {
		return false
	}
	t.sending = true
	return true
}

// open counts the jobs of all turns whose records may or may not be written.
func (o *outbox) open() (n int) {
	for t := range o.turns {
		n += t.open
	}
	return n
}

func (o *outbox) maybeIdle() {
	if !o.closed {
		return
	}
	for t := range o.turns {
		if t.sending {
			return
		}
	}
	select {
	case <-o.idle:
	default:
		close(o.idle)
	}
}

// fifo is a queue of items that gives its memory back when it runs empty.
type fifo struct {
	items []*item
	head  int
}

func (f *fifo) len() int      { return len(f.items) - f.head }
func (f *fifo) push(it *item) { f.items = append(f.items, it) }
func (f *fifo) peek() *item   { return f.items[f.head] }

func (f *fifo) pop() *item {
	it := f.items[f.head]
	f.items[f.head] = nil
	f.head++
	switch {
	case f.head == len(f.items):
		f.items, f.head = nil, 0
	case f.head >= 1024 && f.head*2 >= len(f.items):
		f.items, f.head = append([]*item(nil), f.items[f.head:]...), 0
	}
	return it
}
