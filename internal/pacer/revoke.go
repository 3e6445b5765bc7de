package pacer

import (
	"context"
	"errors"
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
	_, err := inTurn(ctx, p, func(now instant) (done struct{}) {
		p.keep(func(j *delivery.Job) bool { return !drop(j) })
		for _, q := range p.queues.list {
			q.waiting = slices.DeleteFunc(q.waiting, revoked)
			p.makeCapacity(q, now)
		}
		return done
	})
	if err != nil && !errors.Is(err, ErrDraining) {
		return err
	}
	p.opt.Requeuer.Revoke()
	return nil
}
