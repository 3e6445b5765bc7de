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

// letGo leaves a job to the daemon that reads it next. One that has used an attempt, or was told to wait by its destination or its key, goes to a
// timer, as long as it is this daemon's: its record knows of neither.
func (p *Pacer) letGo(j *delivery.Job, now instant) {
	why := delivery.ReasonRetry
	if j.HadTurn() && !tried(j) {
		why = delivery.ReasonKey
	}
	switch leaving, left := j.Source.Revoked(); {
	case (tried(j) || j.Due.After(now.wall) && (j.HadTurn() || !j.Call.At.IsZero())) && !left && p.opt.Owns(now.wall):
		p.opt.Requeuer.Put(j, toTimer(why, j.ReadyAt()).Reroute)
	case leaving || left:
		j.Source.Drop(j.Offset)
	}
}

// Revoke lets go of every job of a revoked source. One in flight is let go of when it comes back and is not settled then. All other jobs
// stay, and the slots go to them.
func (p *Pacer) Revoke(ctx context.Context) error {
	_, err := inTurn(ctx, p, func(now instant) (done struct{}) {
		p.keep(func(j *delivery.Job) bool { return !revoked(j.Source) }, now)
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
