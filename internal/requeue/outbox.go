package requeue

import (
	"slices"
	"time"
)

// outbox holds the queues of all sources, the rings of their turns, and the items that wait for partitions that refuse. It does no I/O;
// every method needs the relay's lock.
type outbox struct {
	queues map[queueKey]*queue // those with items, or busy
	rings  [classes][]*queue   // not busy, not empty; the first has waited longest
	held   map[place]*stalledPartition

	results int // jobs whose events are not acknowledged
}

func newOutbox() *outbox {
	return &outbox{queues: make(map[queueKey]*queue), held: make(map[place]*stalledPartition)}
}

func (o *outbox) put(it *item) {
	if it.result != nil {
		o.results++
	}
	if o.dropIfRevoked(it) {
		return
	}
	q := o.queueOf(it)
	q.items = append(q.items, it)
	o.list(q)
}

// queueOf returns the queue of an item.
func (o *outbox) queueOf(it *item) *queue {
	key := queueKey{it.job.Source, classOf(it.to)}
	if key.class == events {
		key.source = nil
	}
	q := o.queues[key]
	if q == nil {
		q = &queue{queueKey: key}
		o.queues[key] = q
	}
	return q
}

// list gives a queue its turn, or forgets it if it has nothing to write.
func (o *outbox) list(q *queue) {
	switch {
	case q.busy || q.listed:
	case len(q.items) == 0:
		delete(o.queues, q.queueKey)
	default:
		q.listed = true
		o.rings[q.class] = append(o.rings[q.class], q)
	}
}

// next returns the queue of the class whose turn it is, or else how long to wait before one can be served (0: until an
// item is put). Lanes are held until heldUntil.
func (o *outbox) next(class queueClass, now, heldUntil time.Time) (*queue, time.Duration) {
	ring := o.rings[class]
	switch {
	case len(ring) == 0:
		return nil, 0
	case class == lanes && now.Before(heldUntil):
		return nil, heldUntil.Sub(now)
	}
	q := ring[0]
	o.rings[class] = slices.Delete(ring, 0, 1)
	q.listed, q.busy = false, true
	return q, 0
}

// take removes the next batch of a queue.
func (o *outbox) take(q *queue, maxBytes int) []*item {
	jobs := maxBatchJobs
	if q.class == events {
		jobs = eventsBatch
	}
	items, rest := split(q.items, jobs, maxBytes)
	q.items = rest
	return slices.DeleteFunc(items, o.dropIfRevoked)
}

// putBack returns items to the heads of their queues, in their order.
func (o *outbox) putBack(items []*item) {
	of := make(map[*queue][]*item)
	for _, it := range items {
		q := o.queueOf(it)
		of[q] = append(of[q], it)
	}
	for q, list := range of {
		q.items = append(list, q.items...)
		o.list(q)
	}
}

// dropIfRevoked drops an item whose partition has moved to another daemon, which has its job now. If the partition is about to move, it drops
// an item for a lane that is certainly not written. A job that was sent is written to its timer, or as a dead letter, as long as its
// partition is here.
func (o *outbox) dropIfRevoked(it *item) bool {
	leaving, left := it.job.Source.Revoked()
	if !left && (!leaving || it.unknown || classOf(it.to) != lanes) {
		return false
	}
	if it.result != nil {
		o.results--
	}
	it.job.Source.Release(it.job.Offset)
	return true
}

// revoke drops the items of partitions that move, except those in a turn or an attempt: they are dropped when it has failed.
func (o *outbox) revoke() {
	for _, q := range o.queues {
		q.items = slices.DeleteFunc(q.items, o.dropIfRevoked)
		if q.listed && len(q.items) == 0 {
			o.rings[q.class] = slices.DeleteFunc(o.rings[q.class], func(other *queue) bool { return other == q })
			q.listed = false
		}
		o.list(q)
	}
	for _, h := range o.held { // an empty one ends itself
		h.items = slices.DeleteFunc(h.items, o.dropIfRevoked)
	}
}

// jobs returns how many jobs wait to be written to lanes, timers and the dead letters.
func (o *outbox) jobs() (n int) {
	for _, q := range o.queues {
		if q.class != events {
			n += len(q.items)
		}
	}
	return n + o.stalled().requeued
}
