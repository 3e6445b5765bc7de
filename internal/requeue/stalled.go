package requeue

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/retry"
)

// A partition that refuses records, or does not answer, holds up only what must go there. Items that could not be written to it wait in a
// hold, with all later items for it; the queues go on without. A goroutine of the hold tries the first batch again, with growing pauses.
// Once that is accepted, the rest goes back to the heads of the queues. If the partition has refused for moveAfter while others of its
// topic work, the items that are certainly not written go back as well, and the partition is avoided for a while: campaigns get another
// lane. Items whose outcome is unknown wait for their partition, however long.

// place is what items wait for.
type place struct {
	at broker.Partition // ID is anyPartition if the topic's layout cannot be read
	// large is set for records larger than the topic accepts. They concern nothing else in the partition.
	large bool
}

// anyPartition stands for all partitions of a topic.
const anyPartition = -1

const (
	// moveAfter is how long a partition has to refuse before others are taken instead: longer than an election.
	moveAfter = 5 * time.Second
	// avoidFor is how long a partition is avoided after it was last tried.
	avoidFor = time.Minute
)

var (
	// refusedBackoff doubles from 50 ms to 2 s, less a random part of up to half, so that daemons do not retry in step.
	refusedBackoff = retry.Backoff{Initial: 37500 * time.Microsecond, Max: 1500 * time.Millisecond, Jitter: 1. / 3}
	// largeBackoff is for records that will be accepted once an operator has changed the topic.
	largeBackoff = retry.Backoff{Initial: 5 * time.Second, Max: 45 * time.Second, Jitter: 1. / 3}
)

// stalledPartition holds the items that wait for one place. The relay's lock guards it.
type stalledPartition struct {
	place
	items  []*item
	trying []*item   // in the current attempt; none of items
	since  time.Time // of the first failure
}

func (h *stalledPartition) len() int { return len(h.trying) + len(h.items) }

// events reports whether the items are events: all go to the same topic.
func (h *stalledPartition) events() bool {
	return len(h.trying) > 0 && h.trying[0].result != nil || len(h.items) > 0 && h.items[0].result != nil
}

// try takes the items to try. While the outcome of some is unknown, only those are tried: the others may still go
// elsewhere.
func (o *outbox) try(h *stalledPartition, maxBytes int) {
	h.items = slices.DeleteFunc(h.items, o.dropIfRevoked)
	jobs := maxBatchJobs
	if h.large {
		jobs = 1
	}
	for n, it := range h.items {
		if it.unknown != h.items[0].unknown {
			jobs = min(jobs, n)
			break
		}
	}
	h.trying, h.items = split(h.items, jobs, maxBytes)
}

func (h *stalledPartition) backoff() retry.Backoff {
	if h.large {
		return largeBackoff
	}
	return refusedBackoff
}

// failure is an attempt to write items to a place. err is nil if they were not sent, because the place is held.
type failure struct {
	place
	items []*item
	err   error
}

// hold lets the items of a failure wait for their place. It returns the hold if it is new.
func (o *outbox) hold(f failure, now time.Time) *stalledPartition {
	h, known := o.held[f.place], true
	if h == nil {
		h, known = &stalledPartition{place: f.place, since: now}, false
		o.held[f.place] = h
	}
	h.items = append(h.items, slices.DeleteFunc(f.items, o.dropIfRevoked)...)
	if known {
		return nil
	}
	return h
}

// release returns items of a hold to their queues: those that may be written to another partition, or all. A hold without items ends.
func (o *outbox) release(h *stalledPartition, all bool) {
	var free []*item
	h.items = slices.DeleteFunc(h.items, func(it *item) bool {
		if !all && it.unknown {
			return false
		}
		free = append(free, it)
		return true
	})
	if o.putBack(free); len(h.items) == 0 {
		delete(o.held, h.place)
	}
}

// probe tries a hold again until its place accepts a batch, or nothing waits for it any more.
func (r *Relay) probe(ctx context.Context, h *stalledPartition) {
	for n := 1; retry.Sleep(ctx, h.backoff().Delay(n)) == nil; n++ {
		t := &turn{relay: r}
		r.mu.Lock()
		r.box.try(h, maxBatchBytes)
		r.mu.Unlock()

		partitions, err := r.opts.Client.Partitions(ctx, h.at.Topic)
		switch {
		case len(h.trying) == 0: // nothing waits any more
		case h.at.ID != anyPartition:
			t.write(ctx, []broker.Chunk[*item]{{To: h.at, Items: h.trying}})
		case err != nil:
			t.failures = []failure{{h.place, h.trying, err}}
		}
		if r.endProbe(ctx, t, h, partitions) {
			return
		}
	}
}

// endProbe ends an attempt, and reports whether it was the last one.
func (r *Relay) endProbe(ctx context.Context, t *turn, h *stalledPartition, partitions int) (over bool) {
	now := time.Now()
	r.mu.Lock()
	r.tried(ctx, t, h, now)
	if r.mayMove(h, partitions, now) {
		r.avoided[h.at] = now.Add(avoidFor)
		r.box.release(h, false)
	}
	over = r.box.held[h.place] != h
	r.logTrouble(ctx, t, now)
	r.mu.Unlock()
	r.wakeAll()
	return over
}

// tried puts the items of an attempt that failed back to the head of the hold, or releases the hold. It needs the
// relay's lock.
func (r *Relay) tried(ctx context.Context, t *turn, h *stalledPartition, now time.Time) {
	var again []*item
	works := true
	if h.at.ID == anyPartition { // only the layout was read
		again = h.trying
	}
	h.trying = nil
	for _, f := range t.failures {
		switch {
		case f.place != h.place:
			r.hold(ctx, f, now)
			continue
		case f.err != nil:
			works = false
		}
		if h.at.ID != anyPartition {
			again = append(again, f.items...)
		}
	}
	if h.large { // another one may fit
		h.items = append(h.items, again...)
	} else {
		h.items = append(again, h.items...)
	}
	if works {
		r.box.release(h, true)
	}
}

// mayMove reports whether the items of a hold may be written to other partitions: it has refused for long enough, and
// the others do not all refuse. Otherwise an outage of all brokers would move every campaign from lane to lane. It
// needs the relay's lock.
func (r *Relay) mayMove(h *stalledPartition, partitions int, now time.Time) bool {
	avoided := r.avoid(h.at.Topic, now)
	switch {
	case r.box.held[h.place] != h || h.large || h.at.ID == anyPartition:
		return false
	case slices.Contains(avoided, h.at.ID):
		return true
	case now.Sub(h.since) < moveAfter || 2*(len(avoided)+1) > partitions:
		return false
	}
	alone := true
	for p := range r.box.held {
		alone = alone && (p == h.place || p.large || p.at.Topic != h.at.Topic)
	}
	return alone || r.worked[h.items[0].to.Kind].After(h.since)
}

// avoid returns the partitions of a topic that are to be avoided. It needs the relay's lock.
func (r *Relay) avoid(topic string, now time.Time) (ids []int) {
	for at, until := range r.avoided {
		switch {
		case now.After(until):
			delete(r.avoided, at)
		case at.Topic == topic:
			ids = append(ids, at.ID)
		}
	}
	return ids
}

// hold lets the items of a failure wait, and starts the attempts of a new hold. It needs the relay's lock, and is called
// by goroutines of Run only.
func (r *Relay) hold(ctx context.Context, f failure, now time.Time) {
	if h := r.box.hold(f, now); h != nil {
		r.running.Go(func() { r.probe(ctx, h) })
	}
}
