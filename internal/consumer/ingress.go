package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// ingressReader reads one partition of ingress, or, with jobs held until they are due, of a timer.
type ingressReader struct {
	reader
	maxBytes func() int64             // of a fetch
	repeated func(*delivery.Job) bool // reports whether the job was read before in this partition, or in a lane

	// Of a timer:
	idle    *broker.Poll // watches the end of the log, where ingress waits with a long poll
	delay   time.Duration
	known   int64 // what lies before this offset was there at knownAt
	knownAt time.Time

	fetched  fetched
	blocked  bool // jobs were refused, and it waits for room (block.go)
	refusals int  // offers in a row of which all jobs were refused

	hidden lasting // by an open transaction: what comes next

	relieved int64 // the base when relief was last asked for
	askedAt  time.Time
}

// fetched are the jobs of the last fetch that are not registered yet, or were refused. They are charged to the budget.
type fetched struct {
	at    time.Time
	jobs  []*delivery.Job
	bytes int64
	next  int64 // the offset after the last record that the fetch covers; 0 if it failed, or some of its jobs are gone
}

// run reads until ctx ends, or the partition has to be begun anew.
func (r *ingressReader) run(ctx context.Context) *start {
	defer r.drop()
	defer func() { r.watchTransaction(broker.Fetched{}, time.Now()) }()
	return r.reader.run(ctx, r.turn)
}

// turn fetches once and offers the jobs of the fetch, or those that are left of the last one.
func (r *ingressReader) turn(ctx context.Context) (worked bool, err error) {
	r.src.stands.Store(true)
	if err = r.unblock(ctx); err != nil {
		return false, err
	}
	if len(r.fetched.jobs) > 0 {
		return true, r.offerPiece(ctx)
	}
	from := r.src.next()
	if err = r.awaitIntake(ctx, from); err != nil {
		return false, err
	}
	from = r.src.next() // jobs may have been given back
	r.src.heart.rest()
	r.src.stands.Store(false)
	maxBytes, maxWait := r.maxBytes(), longPoll
	if r.isTimer() {
		if maxWait = shortPoll; from >= r.src.edge.Load() {
			if err = r.awaitData(ctx, from); err != nil {
				return false, err
			}
		}
	}
	if err = r.admit(ctx, maxBytes); err != nil {
		return false, err
	}
	f, now := &r.fetched, time.Now()
	f.at = now
	out, err := r.read(ctx, from, maxBytes, maxWait, func(rec *delivery.Record) error {
		if f.bytes >= expansion*r.memory.answer {
			return errEnough
		}
		j := r.decode(rec, now)
		if !r.keep(j.Size) {
			return errEnough
		}
		r.adopt(j)
		if r.isTimer() && rec.Offset < r.known {
			j.ReadAt = r.knownAt
		}
		if len(f.jobs) == 0 {
			r.src.dated(j.Offset, sinceOf(rec, j))
		}
		f.bytes += j.Size
		f.jobs = append(f.jobs, j)
		return nil
	})
	r.release()
	r.src.stands.Store(true)
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil {
		r.watchTransaction(out, now)
		r.src.edge.Store(out.End)
		if f.next = out.Next; f.next > from && (len(f.jobs) == 0 || f.jobs[0].Offset > from) {
			r.src.lose(from)
		}
		if from >= r.known {
			r.known, r.knownAt = out.End, now
		}
	}
	if handErr := r.offerPiece(ctx); handErr != nil {
		return false, handErr
	}
	if err != nil {
		r.drop()
	}
	return true, err
}

// watchTransaction logs that an open transaction hides what comes next, and that it has ended.
func (r *ingressReader) watchTransaction(out broker.Fetched, now time.Time) {
	change, lasted := r.hidden.note(out.Hidden > 0, out.End, now)
	r.src.metrics.transactions.Add(float64(change))
	switch log := r.opt.Logger; change {
	case 1:
		log.Warn("a partition waits for an open transaction of a producer; the jobs behind it are read once it has ended", "partition",
			r.src.String(), "offset", out.End, "records", out.Hidden, "since", r.hidden.since.Format(time.RFC3339),
			"remedy", "end it; kafka-transactions.sh find-hanging names it")
	case -1:
		log.Info("a transaction that a partition waited for has ended", "partition", r.src.String(), "after", lasted)
	}
}

// uncharge gives back what jobs were charged that are not kept.
func (r *ingressReader) uncharge(bytes int64) {
	r.fetched.bytes -= bytes
	r.src.budget.charge(-bytes)
}

// drop forgets what was fetched and is not registered; it is read again.
func (r *ingressReader) drop() {
	r.uncharge(r.fetched.bytes)
	r.fetched, r.blocked = fetched{}, false
}

// offerPiece registers and offers the fetched jobs in pieces, each as soon as the window has room for it. When the handler
// refuses some of a piece, they and what comes after them wait (block.go). If jobs before them were given back, these are read first.
func (r *ingressReader) offerPiece(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			r.drop()
		}
	}()
	for len(r.fetched.jobs) > 0 {
		jobs := r.fetched.jobs
		n := min(len(jobs), offerJobs, r.opt.MaxOpen/2)
		offsets := make([]int64, n)
		for i := range offsets {
			offsets[i] = jobs[i].Offset
		}
		if r.isTimer() {
			r.src.heart.rest()
			var err error
			if n, err = holdUntilDue(ctx, jobs[:n], r.delay); err != nil {
				return err
			}
		}
		if err := r.awaitIntake(ctx, offsets[:n]...); err != nil {
			return err
		}
		if r.src.isBack(offsets[0]) {
			r.drop()
			return nil
		}
		fresh := make([]*delivery.Job, 0, n)
		for _, j := range jobs[:n] {
			if !r.src.register(j) {
				r.uncharge(j.Size)
				continue
			}
			r.fetched.bytes -= j.Size
			switch {
			case r.repeated(j):
				r.src.metrics.repeated.Inc()
				r.src.settle(j.Offset, j.Campaign, inTimer(j))
			default:
				if r.isTimer() {
					j.ReadAt = time.Now() // it has been open since now
				}
				fresh = append(fresh, j)
			}
		}
		clear(jobs[:n])
		r.fetched.jobs = jobs[n:]
		if len(fresh) == 0 {
			continue
		}
		if err := r.offerOnce(ctx, fresh); err != nil {
			return err
		}
		if r.blocked {
			return nil
		}
		r.relieve()
	}
	r.src.passed(r.fetched.next)
	return nil
}

// awaitIntake waits until the window has room for the offsets, or jobs before them were given back, and commits keep up.
func (r *ingressReader) awaitIntake(ctx context.Context, offsets ...int64) error {
	w := r.src
	room := func() bool { return w.window.IsBack(offsets[0]) || w.window.HasCapacity(r.opt.MaxOpen, offsets...) }
	return w.awaitIntake(ctx, room, func() { r.relieve(offsets...) })
}

// relieve asks the handler to move on the older half of the open jobs. It does so if three quarters of those that may be are open, or if the
// window has no room for the offsets. It asks once for every position of the base, and again while that does not help.
func (r *ingressReader) relieve(offsets ...int64) {
	r.src.mu.Lock()
	w, now := r.src.window, time.Now()
	asks := (w.Committed() != r.relieved || now.Sub(r.askedAt) >= stuckAfter) &&
		(w.Open() >= r.opt.MaxOpen/4*3 || !w.HasCapacity(r.opt.MaxOpen, offsets...))
	middle := int64(0)
	if asks {
		r.relieved, r.askedAt, middle = w.Committed(), now, w.Middle()
	}
	r.src.mu.Unlock()
	if asks {
		r.opt.Handler.Relieve(r.src, middle)
	}
}

// isTimer reports whether the partition is one of a timer. The topic's delay is constant, so its jobs become due in the order of the log:
// the reader sleeps until the first job of what it has fetched is due, holding that one small batch.
func (r *ingressReader) isTimer() bool { return r.src.from == delivery.FromTimer }

// awaitData waits until the log of a timer has a record at the offset.
func (r *ingressReader) awaitData(ctx context.Context, offset int64) error {
	wake, leave := r.idle.Park(r.src.partition, offset)
	defer leave()
	select {
	case r.brought = <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holdUntilDue sleeps until the first job is due and returns the number of jobs that are due.
func holdUntilDue(ctx context.Context, jobs []*delivery.Job, delay time.Duration) (int, error) {
	if err := retry.Sleep(ctx, dueIn(jobs[0], delay, time.Now())); err != nil {
		return 0, err
	}
	now, n := time.Now(), 1
	for n < len(jobs) && dueIn(jobs[n], delay, now) <= 0 {
		n++
	}
	return n, nil
}

// dueIn returns in how long a job in a timer is due at now: when it has waited the timer's delay, or earlier, at its own time. Both
// times come from the clock of the daemon that wrote the job. In case that clock is ahead, or this one was, no job waits longer
// than the delay from when it was known to be there (ReadAt).
func dueIn(j *delivery.Job, delay time.Duration, now time.Time) time.Duration {
	in := min(j.EnqueuedAt.Time().Add(delay).Sub(now), j.ReadAt.Add(delay).Sub(now))
	if own := j.ReadyAt(); !own.IsZero() {
		in = min(in, own.Sub(now))
	}
	return in
}
