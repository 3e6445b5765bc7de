package pacer

import (
	"context"
	"errors"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// revocable is a source whose partition may move to another daemon while others stay.
type revocable interface {
	// Revoked reports whether it is about to, and whether it has.
	Revoked() (leaving, left bool)
	// Drop notes that nobody has the job at an offset any more, and that it was not settled.
	Drop(offset int64)
}

func revoked(src revocable) bool {
	leaving, left := src.Revoked()
	return leaving || left
}

// drop forgets a job whose source is revoked, and reports whether it is.
func drop(j *delivery.Job) bool {
	src, ok := j.Source.(revocable)
	if !ok || !revoked(src) {
		return false
	}
	src.Drop(j.Offset)
	return true
}

// Revoke drops every job of a revoked source that is not in flight; one in flight that is not settled when it comes back is dropped
// then. All other jobs stay, and the slots go to them.
func (p *Pacer) Revoke(ctx context.Context) error {
	_, err := inTurn(ctx, p, func(now instant) (done struct{}) { p.dropRevoked(now); return done })
	if err != nil && !errors.Is(err, ErrDraining) {
		return err
	}
	p.opt.Requeuer.Revoke()
	return nil
}

func (p *Pacer) dropRevoked(now instant) {
	keep := func(j *delivery.Job) bool { return !drop(j) }
	for _, q := range p.queues.list {
		q.filter(func(_ int64, j *delivery.Job) bool { return keep(j) })
		q.waiting = slices.DeleteFunc(q.waiting, func(src capacityReceiver) bool {
			r, ok := src.(revocable)
			return ok && revoked(r)
		})
		p.returnUnused(q)
		p.makeCapacity(q, now)
	}
	for c := range p.notQueued() {
		c.filter(func(_ int64, j *delivery.Job) bool { return keep(j) })
	}
}
