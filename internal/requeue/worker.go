package requeue

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

// turn is one service of one queue by a worker, or one attempt of a hold: at most one batch. Its goroutine owns it.
type turn struct {
	relay    *Relay
	q        *queue // nil: an attempt of a hold
	failures []failure
	wrote    bool // a record was acknowledged
}

func (r *Relay) work(ctx context.Context, class queueClass) {
	for {
		q := r.acquire(ctx, class)
		if q == nil {
			return
		}
		if class == events {
			_ = retry.Sleep(ctx, linger) // when ctx ends, nothing is written
		}
		t := &turn{relay: r, q: q}
		t.serve(ctx)
		r.end(ctx, t)
	}
}

// serve writes one batch.
func (t *turn) serve(ctx context.Context) {
	r := t.relay
	r.mu.Lock()
	items := r.box.take(t.q, maxBatchBytes)
	r.mu.Unlock()
	t.write(ctx, t.plan(ctx, items))
}

// write sends the chunks and settles what is acknowledged.
func (t *turn) write(ctx context.Context, chunks []broker.Chunk[*item]) {
	var encoder record.Encoder
	w := broker.Writer[*item]{
		Client: t.relay.opts.Client, Compress: len(chunks) == 0 || chunks[0].Items[0].result == nil, Aside: t.q != nil && t.q.class == lanes,
		Encode: func(it *item, now time.Time) delivery.Record {
			if f := it.result; f != nil {
				return delivery.Record{Time: f.at, Key: []byte(it.job.ID), Value: f.encode(it.job)}
			}
			return encoder.Encode(it.job, it.to, now)
		},
		Acked:    t.settle,
		Failed:   func(c broker.Chunk[*item], err error) { t.fail(place{at: c.To}, c.Items, err) },
		Sent:     func(took time.Duration) { t.relay.metrics.produce.Observe(took.Seconds()) },
		TooLarge: t.tooLarge,
	}
	for _, c := range w.Write(ctx, chunks) {
		t.failures = append(t.failures, failure{place: place{at: c.To}, items: c.Items})
	}
}

// settle settles items that the broker has acknowledged. It reads the fields that it needs from a job first, since it
// must not touch a settled job.
func (t *turn) settle(items []*item) {
	m := t.relay.metrics
	results := 0
	for _, it := range items {
		if f := it.result; f != nil {
			results++
			m.results.Inc()
			if f.short {
				m.short.Inc()
			}
			f.next.Settle(it.job, f.outcome)
			continue
		}
		m.records[it.to.Kind].Inc()
		if it.to.Kind == delivery.ToLane {
			m.hops.Observe(float64(record.HopsAfter(it.job, it.to)))
		}
		if it.to.Kind == delivery.ToDead {
			it.job.Reason = string(it.to.Reason)
			m.dead.WithLabelValues(string(it.to.Reason)).Inc()
		}
		it.job.Settle(OutcomeOf(it.to))
	}
	t.wrote = true
	t.relay.mu.Lock()
	defer t.relay.mu.Unlock()
	t.relay.worked[items[0].to.Kind] = time.Now()
	t.relay.box.results -= results
}

// fail records that items were not written to a place, or not certainly. Events may be written twice, so another partition may take those.
func (t *turn) fail(p place, items []*item, err error) {
	if !broker.NotWritten(err) {
		for _, it := range items {
			it.unknown, it.at = it.result == nil, p.at
		}
	}
	t.failures = append(t.failures, failure{place: p, items: items, err: err})
}

// tooLarge holds a job that is larger than its topic takes. An event holds nothing up: it is written without its variable parts, and given up
// if it is too large even so.
func (t *turn) tooLarge(to broker.Partition, it *item, err error) *broker.Chunk[*item] {
	t.relay.logTooLarge(to, it, err)
	switch f := it.result; {
	case f == nil:
		t.fail(place{at: to, large: true}, []*item{it}, err)
	case f.short:
		f.next.Settle(it.job, f.outcome)
		t.relay.mu.Lock()
		defer t.relay.mu.Unlock()
		t.relay.box.results--
	default:
		f.short = true
		return &broker.Chunk[*item]{To: to, Items: []*item{it}}
	}
	return nil
}

// OutcomeOf returns the outcome of a job that is written to its destination.
func OutcomeOf(to delivery.Reroute) delivery.Outcome {
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

// end ends a worker's turn.
func (r *Relay) end(ctx context.Context, t *turn) {
	now := time.Now()
	r.mu.Lock()
	for _, f := range t.failures {
		r.hold(ctx, f, now)
	}
	t.q.busy = false
	r.box.list(t.q)
	r.logTrouble(ctx, t, now)
	r.mu.Unlock()
	r.wakeAll()
}
