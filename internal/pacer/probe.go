package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// An outage in which the destination answers for each job, with 500 for instance, looks like many bad jobs that come
// together. What tells them apart is what else there is: as long as jobs come that have not been tried, those are tried, and
// each loses one attempt in the end. When no more come, bad jobs are what is left.

const (
	// untriedFor is how long after the last job that was tried for the first time the next one is waited for.
	untriedFor = 2 * time.Second
	// heldBackFor is how long a job that is held back waits at a time. One of a lane that has waited for longHeldBack, and any
	// other after max_open_age, goes to a timer, ever longer up to longHeldBack.
	heldBackFor  = 500 * time.Millisecond
	longHeldBack = 30 * time.Second
)

// mayBeOutage tells whether failures of the queue, each with an answer of the destination's own, look like an outage.
func mayBeOutage(q *queue, now int64) bool {
	b, c := &q.sink.breaker, &q.circuit
	return c.allAnswered() && (b.others <= now && (b.tripped || b.several && b.outage(now)) || c.elsewhere <= now && c.outage(now))
}

// untried tells whether jobs of the queue wait, and could be sent now, that have not been tried yet, or one has been just now.
// What a lane still has counts as such.
func (p *Pacer) untried(q *queue, now instant) bool {
	if c := &q.circuit; c.allAnswered() && now.local-c.last < untriedFor.Microseconds() {
		return true
	}
	return (q.ranked.untried > 0 || len(q.waiting) > 0) && q.campaign != nil && q.standing(now) == sending && !p.far(q, now)
}

// untriedInFleet tells whether another daemon has such jobs for the sink, and nobody is known to have had a success since.
func (s *sinkState) untriedInFleet(since int64, now instant) bool {
	return s.untriedUntil > now.local && !s.tookSince(since)
}

// spared tells whether a failure uses up no further attempt of a job that has used up one.
func (p *Pacer) spared(x *sent, v verdict, now instant) bool {
	q, s := x.queue, x.sink
	switch {
	case x.job.Attempt == 0:
		return false
	case x.result.By == delivery.ByNobody:
		return q.circuit.unansweredLong(now.local) && p.untried(q, now)
	case s.untriedInFleet(x.since, now):
		return true
	case v == tolerated:
		return false
	case v == campaignFails, v == undecided && !s.breaker.several:
		return p.untried(q, now)
	}
	for _, other := range p.queues.list {
		if other.sink == s && p.untried(other, now) {
			return true
		}
	}
	return false
}

// holdBack lets a job wait that would be spared: it makes room for those that have not been tried. It does not stay in memory
// for long, since the outage may last.
func (p *Pacer) holdBack(q *queue, j *delivery.Job, now instant) bool {
	c := &q.circuit
	if j.Attempt == 0 || q.sink == nil || c.isHeld() || !c.allAnswered() {
		return false
	}
	here := mayBeOutage(q, now.local) && p.untried(q, now)
	if !here && !q.sink.untriedInFleet(c.since, now) {
		return false
	}
	since, most := j.ReadAt, p.opt.MaxOpenAge
	if stays(j, q.campaign) {
		most = longHeldBack
		if j.Call.At.After(since) {
			since = j.Call.At
		}
	}
	if now.wall.Sub(since) < most {
		p.wait(j, heldBackFor, delivery.ReasonRetry, now)
	} else {
		d := min(longHeldBack, max(p.opt.Retry.after(1+int(j.TimerHops)), p.opt.MaxOpenAge))
		p.opt.Requeuer.Put(j, delivery.Reroute{Kind: delivery.ToTimer, Reason: delivery.ReasonRetry, Due: now.wall.Add(d)})
	}
	return true
}

// yields tells whether a job for the destination lets those go first that have not been tried: the destination fails and answers for each
// job, so that whatever tries it loses an attempt.
func (d *destination) yields(j *delivery.Job, now int64) bool {
	if j.Attempt == 0 || !d.tripped || d.cause != delivery.GateFailing || d.answered < d.failures {
		return false
	}
	for i := range d.line.len() {
		if d.line.at(i).Attempt == 0 {
			return true
		}
	}
	return d.untriedUntil > now
}

// untriedSinks lists the sinks that look as if they do not work while jobs come that have not been tried.
func (p *Pacer) untriedSinks(now instant) (list []string) {
	known := map[*sinkState]bool{}
	for _, q := range p.queues.list {
		if s := q.sink; s != nil && !known[s] && mayBeOutage(q, now.local) && p.untried(q, now) {
			known[s] = true
			list = append(list, s.id)
		}
	}
	return list
}
