package pacer

import (
	"context"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

func revoked(src delivery.Source) bool {
	leaving, left := src.Revoked()
	return leaving || left
}

// drop forgets a job whose source is revoked, and reports whether it is.
func drop(j *delivery.Job) bool {
	if !revoked(j.Source) {
		return false
	}
	j.Source.Drop(j.Offset)
	return true
}

// Revoke drops every job of a revoked source that is not in flight; one in flight that is not settled when it comes back is dropped
// then. All other jobs stay, and the slots go to them.
func (p *Pacer) Revoke(ctx context.Context) error {
	done := make(chan struct{})
	p.inbox.do(func(now instant) {
		p.dropRevoked(now)
		close(done)
	})
	select {
	case <-done:
	case <-p.inbox.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.opt.Requeuer.Revoke()
	return nil
}

func (p *Pacer) dropRevoked(now instant) {
	keep := func(j *delivery.Job) bool { return !drop(j) }
	for _, q := range p.queues.list {
		q.filter(func(_ int64, j *delivery.Job) bool { return keep(j) })
		q.waiting = slices.DeleteFunc(q.waiting, revoked)
		p.returnUnused(q)
		p.makeCapacity(q, now)
	}
	p.aside.retain(keep)
	for d := range p.destinations.lines() {
		p.destinations.filter(d, func(_ int, j *delivery.Job) bool { return keep(j) })
	}
}

// retain drops the jobs for which keep returns false.
func (a *delayedJobs) retain(keep func(*delivery.Job) bool) {
	entries := a.waits.entries
	a.waits.entries = nil
	for _, e := range entries {
		if keep(e.item) {
			a.waits.push(e.item, e.at)
		}
	}
	for _, s := range a.sinks {
		s.followUps.filter(func(j *delivery.Job, _ bool) bool { return keep(j) })
	}
}
