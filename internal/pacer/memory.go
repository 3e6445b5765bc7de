package pacer

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
)

// container is what holds jobs in memory: a queue, the delayed jobs, the line of a destination, the follow-ups of a sink.
type container interface {
	// filter keeps the jobs that keep approves. before is the number of units, or else jobs, that go before.
	filter(keep func(before int64, j *delivery.Job) bool)
}

// takeOut removes the jobs that out selects from a container.
func takeOut(c container, out func(before int64, j *delivery.Job) bool) (jobs []*delivery.Job) {
	c.filter(func(before int64, j *delivery.Job) bool {
		if !out(before, j) {
			return true
		}
		jobs = append(jobs, j)
		return false
	})
	return jobs
}

// moveOut moves jobs out of what holds them, if they have not expired.
func (p *Pacer) moveOut(c container, out func(before int64, j *delivery.Job) bool, to func(*delivery.Job) placement, now instant) {
	for _, j := range takeOut(c, out) {
		if j.Expired(now.wall) {
			p.carryOut(j, late(), now)
		} else {
			p.carryOut(j, to(j), now)
		}
	}
}

// notQueued yields all that holds jobs but the queues, and for each whether a slot is all that its jobs need.
func (p *placing) notQueued(now instant) iter.Seq2[container, bool] {
	return func(yield func(container, bool) bool) {
		if !yield(&p.aside, false) {
			return
		}
		for _, s := range p.sinks {
			if !yield(&s.followUps, false) {
				return
			}
		}
		for d := range p.destinations.lines() {
			if !yield(&d.line, !d.shut(now.local)) {
				return
			}
		}
	}
}

// inTurn calls f in a turn of the scheduler, and returns its result. With an error, f was not called and never is, unless the scheduler has ended.
func inTurn[T any](ctx context.Context, p *Pacer, f func(now instant) T) (result T, err error) {
	answer := make(chan T, 1)
	var begun atomic.Bool // by the scheduler, or given up here
	p.inbox.do(func(now instant) {
		if begun.CompareAndSwap(false, true) {
			answer <- f(now)
		}
	})
	for ended := ctx.Done(); ; {
		select {
		case result = <-answer:
			return result, nil
		case <-p.inbox.closed:
			return result, errEnded
		case <-ended:
			if begun.CompareAndSwap(false, true) {
				return result, ctx.Err()
			}
			ended = nil // the scheduler is at it
		}
	}
}

// InMemory lists the campaigns that have jobs in this daemon's memory, waiting for a slot, for their time, or for their
// campaign to be resumed; jobs in a sink call are counted apart. The scheduler visits every queue and every job that
// waits for anything but a slot; campaigns without jobs cost nothing. It is meant to be called about once a second.
func (p *Pacer) InMemory(ctx context.Context) ([]delivery.MemoryJobs, error) {
	return inTurn(ctx, p, p.inMemory)
}

// AtDestinations returns how many jobs in this daemon's memory wait for their destinations, by those with a row. Jobs of timers count there.
func (p *Pacer) AtDestinations(ctx context.Context) (map[string]int64, error) {
	return inTurn(ctx, p, func(instant) map[string]int64 {
		waiting := map[string]int64{}
		for d := range p.destinations.lines() {
			for i := range d.line.len() {
				if d.set.Version != 0 && d.line.at(i).From != delivery.FromTimer {
					waiting[d.name]++
				}
			}
		}
		return waiting
	})
}

func (p *Pacer) inMemory(now instant) (list []delivery.MemoryJobs) {
	list = make([]delivery.MemoryJobs, 0, len(p.queues.list))
	for _, q := range p.queues.list {
		if n := int64(q.len()); n > 0 || q.calls.inFlight > 0 {
			m := delivery.MemoryJobs{Campaign: q.id, Jobs: n, Units: q.units, Retrying: int64(q.retrying), InHand: int64(q.calls.inFlight)}
			if q.ask.paced && q.turnAt > now.local {
				m.Turn = now.timeOf(q.turnAt)
			}
			list = append(list, m)
		}
	}
	at := map[string]int{}
	for c, ready := range p.notQueued(now) {
		c.filter(func(_ int64, j *delivery.Job) bool {
			if len(at) == 0 {
				for i := range list {
					at[list[i].Campaign] = i
				}
			}
			i, ok := at[j.Campaign]
			if !ok {
				i = len(list)
				at[j.Campaign] = i
				list = append(list, delivery.MemoryJobs{Campaign: j.Campaign})
			}
			m := &list[i]
			m.Jobs++
			if !ready {
				m.Early++
			}
			if j.State == nil {
				m.Units += j.Weight
			}
			if j.Retrying() {
				m.Retrying++
			}
			return true
		})
	}
	return list
}
