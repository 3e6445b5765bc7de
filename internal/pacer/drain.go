package pacer

import (
	"context"
	"errors"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// draining is the state of drains.
type draining struct {
	done    chan<- int // receives the number of jobs in doubt when sends have ended; nil unless that is awaited
	doubt   int        // jobs that were sent, perhaps, and not settled
	stopped bool       // from the beginning of a drain to its end
	epoch   int        // counts drains; results of sends from before the last one settle nothing
}

// Drain lets go of every job that is not in flight, hands all slots back, and waits for sends and produce calls in flight.
// When ctx ends first, the sends are cancelled. It returns how many jobs are in doubt: possibly sent, and not settled.
// Afterwards the Pacer accepts offers again.
func (p *Pacer) Drain(ctx context.Context) (open int, err error) {
	done := make(chan int, 1)
	p.inbox.do(func(now instant) {
		p.drain.doubt, p.drain.stopped, p.drain.done = 0, true, done
		p.empty(now)
	})
	select {
	case open = <-done:
	case <-p.inbox.closed:
	case <-ctx.Done():
		p.inbox.do(func(instant) { p.sends.cancel() })
		select {
		case open = <-done:
		case <-p.inbox.closed:
		case <-time.After(cancelledSendsEnd):
			err = errors.New("drain: cancelled sends did not return")
		}
	}
	open += p.opt.Requeuer.Drain(ctx)
	p.inbox.do(func(instant) {
		p.drain.done, p.drain.stopped = nil, false
		p.drain.epoch++
		p.sends.renew()
	})
	return open, err
}

// cancelledSendsEnd is how long a sink has to return after its call was cancelled.
const cancelledSendsEnd = time.Second

// disown drops every job that is not in flight if they belong to other daemons by now, and reports whether they do. A drain
// follows.
func (p *Pacer) disown(now instant) bool {
	if p.opt.Owns(now.wall) {
		return false
	}
	p.empty(now)
	return true
}

// empty lets go of every job that is not in flight and hands all slots back.
func (p *Pacer) empty(now instant) {
	p.returnUnsent()
	p.keep(func(*delivery.Job) bool { return false }, now)
	for _, q := range p.queues.list {
		q.waiting = nil
		p.takes.asks.remove(q)
	}
}

// keep lets go of the jobs in memory that stays rejects, and hands back the slots of queues that are empty then.
func (p *Pacer) keep(stays func(*delivery.Job) bool, now instant) {
	keeps := func(_ int64, j *delivery.Job) bool {
		kept := stays(j)
		if !kept {
			p.letGo(j, now)
		}
		return kept
	}
	for _, q := range p.queues.list {
		p.disallow(q, every)
		q.filter(keeps)
		p.returnUnused(q)
	}
	for c := range p.notQueued(now) {
		c.filter(keeps)
	}
}

// drained answers a drain when nothing is in flight any more.
func (p *Pacer) drained() {
	if p.drain.done != nil && p.sends.inFlight == 0 {
		p.drain.done <- p.drain.doubt
		p.drain.done = nil
	}
}
