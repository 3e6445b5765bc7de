package requeue

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// turn is one worker's service of one queue: at most one batch of one source. The worker owns it, except where
// stated.
type turn struct {
	relay *Relay
	box   *outbox
	q     *queue

	// Guarded by the relay's lock.
	sending bool // a produce call was begun
	open    int  // jobs whose record may or may not be written

	wrote  bool // something was acknowledged
	failed []*item
	err    error // why failed has to be written again
}

// chunk is the part of a batch that goes to one partition.
type chunk struct {
	to    partition
	items []*item
}

func (r *Relay) work(ctx context.Context) {
	for {
		box, q := r.acquire(ctx)
		if q == nil {
			return
		}
		t := &turn{relay: r, box: box, q: q}
		t.serve(ctx)
		r.release(ctx, t)
	}
}

// serve writes one batch.
func (t *turn) serve(ctx context.Context) {
	if t.q.dirty {
		// What the batch before settled has to be committed before more is written, or else a crash would repeat
		// two batches.
		flushing, cancel := context.WithTimeout(ctx, flushTimeout)
		err := t.q.source.Flush(flushing)
		cancel()
		if err != nil {
			t.err = fmt.Errorf("commit %s before its next batch: %w", t.q.source.Name(), err)
			return
		}
		t.q.dirty = false
	}
	r := t.relay
	r.mu.Lock()
	items := t.box.take(t, int(r.batchBytes.Load()), time.Now().Before(r.brake.until))
	r.mu.Unlock()
	chunks, err := t.plan(ctx, items)
	if err != nil {
		t.failed, t.err = items, err
		return
	}
	t.write(ctx, chunks)
}

// plan groups the items by partition, in their order.
func (t *turn) plan(ctx context.Context, items []*item) ([]*chunk, error) {
	var chunks []*chunk
	byPartition := make(map[partition]*chunk)
	now := time.Now()
	for _, it := range items {
		to, err := t.relay.destination(ctx, t.q.source, it, now)
		if err != nil {
			return nil, err
		}
		c := byPartition[to]
		if c == nil {
			c = &chunk{to: to}
			byPartition[to] = c
			chunks = append(chunks, c)
		}
		c.items = append(c.items, it)
	}
	return chunks, nil
}

// write sends the chunks in rounds, settles what is acknowledged, and halves what is too large until only the
// offending records are left. It ends early when the outbox was drained: the rest stays open.
func (t *turn) write(ctx context.Context, chunks []*chunk) {
	for len(chunks) > 0 {
		var round []*chunk
		round, chunks = distinct(chunks)
		if !t.enter(round) {
			t.failed = append(append(t.failed, flatten(round)...), flatten(chunks)...)
			return
		}
		for i, rb := range t.relay.send(ctx, round) {
			items := round[i].items
			switch {
			case rb.err == nil:
				t.settle(items)
			case tooLarge(rb.err):
				chunks = append(chunks, t.smaller(ctx, round[i], rb.err)...)
			default:
				t.fail(items, rb.err)
			}
		}
	}
}

// enter registers that the records of a round may be written from now on.
func (t *turn) enter(round []*chunk) bool {
	t.relay.mu.Lock()
	defer t.relay.mu.Unlock()
	if !t.box.enter(t) {
		return false
	}
	t.open = len(flatten(round)) + doubtful(t.failed)
	return true
}

// settle settles items that the broker has acknowledged. It first reads what it needs of a job, which is nobody's
// once settled.
func (t *turn) settle(items []*item) {
	m := t.relay.metrics
	for _, it := range items {
		m.records[it.to.Kind].Inc()
		if it.to.Kind == delivery.ToLane {
			m.hops.Observe(float64(hopsAfter(it)))
		}
		if it.to.Kind == delivery.ToDead {
			it.job.Reason = string(it.to.Reason)
		}
		it.job.Settle(outcomeOf(it.to))
	}
	t.q.dirty, t.wrote = true, true
	t.relay.mu.Lock()
	t.open -= len(items)
	t.relay.mu.Unlock()
}

func (t *turn) fail(items []*item, err error) {
	certain := refused(err)
	for _, it := range items {
		it.unknown = it.unknown || !certain
	}
	t.failed, t.err = append(t.failed, items...), err
}

// smaller answers a chunk that is too large for its topic: two halves of it, or, for a single record, a dead
// letter that keeps part of it.
func (t *turn) smaller(ctx context.Context, c *chunk, err error) []*chunk {
	if n := len(c.items); n > 1 {
		t.relay.lowerBatchBytes(c.items)
		return []*chunk{{to: c.to, items: c.items[:n/2]}, {to: c.to, items: c.items[n/2:]}}
	}
	it := c.items[0]
	if it.cut == cutAll { // the topic takes nothing at all
		t.fail(c.items, err)
		return nil
	}
	it.cut++
	if it.to.Kind != delivery.ToDead {
		it.to = delivery.Destination{Kind: delivery.ToDead, Reason: delivery.ReasonOversize}
	}
	it.to.Detail = oneLine(fmt.Sprintf("the record is larger than topic %s takes: the payload of %d bytes is cut; %s",
		c.to.topic, len(it.job.Payload), it.to.Detail), maxDetail)
	to, planErr := t.relay.destination(ctx, t.q.source, it, time.Now())
	if planErr != nil {
		t.fail(c.items, planErr)
		return nil
	}
	return []*chunk{{to: to, items: c.items}}
}

// lowerBatchBytes learns from a batch that was too large.
func (r *Relay) lowerBatchBytes(items []*item) {
	size := 0
	for _, it := range items {
		size += it.size
	}
	if lower := max(int64(size/2), minBatchBytes); lower < r.batchBytes.Load() {
		r.batchBytes.Store(lower)
	}
}

// send writes the chunks of a round and returns their outcomes in the same order.
func (r *Relay) send(ctx context.Context, round []*chunk) []*recordBatch {
	now := time.Now()
	batches := make([]*recordBatch, len(round))
	for i, c := range round {
		records := make([]kafka.Record, len(c.items))
		for k, it := range c.items {
			records[k] = encode(it, now)
		}
		batches[i] = &recordBatch{to: c.to, records: records}
	}
	r.broker.send(ctx, batches)
	r.metrics.produce.Observe(time.Since(now).Seconds())
	return batches
}

// destination picks the partition an item is written to. The items of a source share a timer's partition: they
// come back in the order they went, and make few requests.
func (r *Relay) destination(ctx context.Context, source delivery.Source, it *item, now time.Time) (partition, error) {
	var topic, key string
	switch it.to.Kind {
	case delivery.ToLane:
		topic = LaneTopic(r.opts.Prefix)
	case delivery.ToTimer:
		topic, key = TimerTopic(r.opts.Prefix, TimerFor(r.opts.Timers, now, dueAt(it.job, it.to))), source.Name()
	default:
		topic, key = DeadTopic(r.opts.Prefix), it.job.Campaign
	}
	n, err := r.broker.partitions(ctx, topic)
	if err != nil {
		return partition{}, err
	}
	if it.to.Kind == delivery.ToLane {
		return partition{topic: topic, id: r.pins.lane(ctx, it.job.Campaign) % n}, nil
	}
	return partition{topic: topic, id: hashPartition(key, n)}, nil
}

// outcomeOf is the fate of a job once it is at its destination.
func outcomeOf(to delivery.Destination) delivery.Outcome {
	switch {
	case to.Kind == delivery.ToLane:
		return delivery.OutcomeRequeued
	case to.Kind == delivery.ToTimer:
		return delivery.OutcomeRetried
	case to.Reason == delivery.ReasonExpired:
		return delivery.OutcomeExpired
	default:
		return delivery.OutcomeDead
	}
}

// distinct splits off the chunks that one round can write: a request holds a partition once.
func distinct(chunks []*chunk) (round, rest []*chunk) {
	seen := make(map[partition]bool, len(chunks))
	for _, c := range chunks {
		if seen[c.to] {
			rest = append(rest, c)
			continue
		}
		seen[c.to] = true
		round = append(round, c)
	}
	return round, rest
}

func flatten(chunks []*chunk) []*item {
	var items []*item
	for _, c := range chunks {
		items = append(items, c.items...)
	}
	return items
}
