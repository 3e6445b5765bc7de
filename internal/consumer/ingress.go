package consumer

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/delivery"
)

// ingressReader reads one partition of ingress. Timers are read by the same loop, with jobs held until they are due
// (timer.go).
type ingressReader struct {
	*shared
	src      *source
	maxBytes int64
	maxWait  time.Duration
	// hold waits until the jobs before n of the batch may be handed over, at least one; nil for at once.
	hold func(ctx context.Context, jobs []*delivery.Job) (n int, err error)
	// idle waits for data where there is none; nil to find out with a long poll.
	idle func(ctx context.Context, offset int64) error

	refused []*delivery.Job // by the handler, because they stay here until there is room (block.go); in order
	room    <-chan struct{} // closed when there may be

	relieved int64 // the base when relief was last asked for
	askedAt  time.Time
}

// run reads until ctx ends.
func (r *ingressReader) run(ctx context.Context) {
	defer r.health.forget(r.src.String())
	var wait backoff
	for ctx.Err() == nil {
		if err := r.unblock(ctx); err != nil {
			return
		}
		offset := r.src.position()
		if err := r.awaitIntake(ctx, offset); err != nil {
			return
		}
		if r.idle != nil && offset >= r.src.end.Load() {
			if err := r.idle(ctx, offset); err != nil {
				return
			}
		}
		err := r.readOnce(ctx, offset)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			wait.reset()
		default:
			if r.failed(ctx, r.src.partition, err, &wait, r.reset) != nil {
				return
			}
		}
	}
}

// readOnce fetches from the offset on and hands over what comes.
func (r *ingressReader) readOnce(ctx context.Context, offset int64) error {
	if err := r.budget.acquire(ctx, r.maxBytes, false); err != nil {
		return err
	}
	defer r.budget.charge(-r.maxBytes, false)
	var records []*record
	out, err := r.read(ctx, fetchRequest{
		partition: r.src.partition, offset: offset, maxBytes: r.maxBytes, maxWait: r.maxWait,
	}, r.src.from, func(rec *protocol.Record) error {
		c, err := copyRecord(r.src.partition, rec)
		if err == nil {
			records = append(records, c)
		}
		return err
	})
	if err == nil {
		r.src.end.Store(out.end)
	}
	if handErr := r.handOver(ctx, records); handErr != nil {
		return handErr
	}
	if err == nil && len(r.refused) == 0 {
		r.src.passed(out.next)
	}
	return err
}

// handOver registers and offers the records in pieces, each as soon as the window has room for it. When the handler
// refuses some of a piece, what comes after it is read again later.
func (r *ingressReader) handOver(ctx context.Context, records []*record) error {
	now := time.Now()
	jobs := make([]*delivery.Job, len(records))
	for i, rec := range records {
		jobs[i] = r.job(rec, r.src.from, r.src, now)
		records[i] = nil
	}
	for len(jobs) > 0 {
		n := r.piece(jobs)
		if r.hold != nil {
			var err error
			if n, err = r.hold(ctx, jobs[:n]); err != nil {
				return err
			}
		}
		if err := r.awaitIntake(ctx, jobs[n-1].Offset); err != nil {
			return err
		}
		fresh := make([]*delivery.Job, 0, n)
		for _, j := range jobs[:n] {
			if r.src.register(j.Offset, j.Size, whoseIs(j.Campaign)) {
				if r.hold != nil {
					j.ReadAt = time.Now() // it has been open since now
				}
				fresh = append(fresh, j)
			}
		}
		clear(jobs[:n])
		jobs = jobs[n:]
		if len(fresh) == 0 {
			continue
		}
		if err := r.offerOnce(ctx, fresh); err != nil {
			return err
		}
		if len(r.refused) > 0 {
			r.blockers.note(r.src.partition, r.refused[0], fresh, jobs)
			return nil
		}
		r.relieve(fresh[len(fresh)-1].Offset)
	}
	return nil
}

// piece is how many of the jobs to hand over at once. Where compaction has left gaps, few offsets may lie far apart, and
// a window has room for all that lie between.
func (r *ingressReader) piece(jobs []*delivery.Job) int {
	n := min(len(jobs), offerJobs)
	for n > 1 && jobs[n-1].Offset-jobs[0].Offset >= r.maxOpen {
		n--
	}
	return n
}

// awaitIntake waits until the window has room for the offset and commits keep up.
func (r *ingressReader) awaitIntake(ctx context.Context, offset int64) error {
	for {
		ok, moved := r.src.admits(offset, r.maxOpen)
		if ok {
			return ctx.Err()
		}
		r.relieve(offset)
		again := time.NewTimer(stuckAfter)
		select {
		case <-moved:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// relieve asks for the older half of a window to be moved on, when it is three quarters full or too full for the offset:
// once for every position of its base, and again while that does not help.
func (r *ingressReader) relieve(offset int64) {
	base, width := r.src.width()
	if width < r.maxOpen/4*3 && offset-base < r.maxOpen {
		return
	}
	now := time.Now()
	if base == r.relieved && now.Sub(r.askedAt) < stuckAfter {
		return
	}
	r.relieved, r.askedAt = base, now
	r.handler.Relieve(r.src, base+r.maxOpen/2)
}

// reset goes on at the earliest record there is.
func (r *ingressReader) reset(first, end int64) {
	offset := r.src.position()
	if offset >= first && offset <= end {
		return // the log has moved since
	}
	if r.src.restart(first) {
		r.outOfRange(r.src.partition, offset, first, end)
	}
}
