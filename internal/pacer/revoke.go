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
	_, left := j.Source.Revoked()
	if (tried(j) || j.Due.After(now.wall) && (j.HadTurn() || !j.Call.At.IsZero())) && !left && p.opt.Owns(now.wall) {
		p.opt.Requeuer.Put(j, toTimer(why, j.ReadyAt()).Reroute)
	} else {
		j.Source.Release(j.Offset)
	}
}

// Revoke lets go of every job of a revoked source. One in flight is let go of when it comes back and is not settled then. All other jobs
// stay, and the slots go to them.
func (p *Pacer) Revoke(ctx context.Context) error {
	_, err := inTurn(ctx, p, func(now instant) (done struct{}) {
		p.keep(func(src delivery.Source) bool { return !revoked(src) }, now)
		return done
	})
	if err != nil && !errors.Is(err, errEnded) {
		return err
	}
	p.opt.Requeuer.Revoke()
	return nil
}

// disown lets go of every job that is not in flight if they belong to other daemons by now, and reports whether they do. All sources are
// revoked then.
func (p *Pacer) disown(now instant) bool {
	if p.opt.Owns(now.wall) {
		return false
	}
	p.keep(func(delivery.Source) bool { return false }, now)
	return true
}

// keep lets go of the jobs in memory whose source stays rejects, and hands back the slots of queues that are empty then.
func (p *Pacer) keep(stays func(delivery.Source) bool, now instant) {
	p.returnUnsent()
	release := func(c container) {
		jobs := takeOut(c, func(_ int64, j *delivery.Job) bool { return !stays(j.Source) })
		for _, j := range slices.Backward(jobs) { // a lane takes them back from its end
			p.letGo(j, now)
		}
	}
	for _, q := range p.queues.list {
		p.disallow(q, every)
		release(q)
		p.returnUnused(q)
	}
	for c := range p.notQueued(now) {
		release(c)
	}
	for _, q := range p.queues.list {
		q.waiting = slices.DeleteFunc(q.waiting, func(src delivery.Source) bool { return !stays(src) })
		p.makeCapacity(q, now)
	}
}
