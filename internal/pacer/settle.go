package pacer

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	probeEvery    = time.Second    // of a gate that failures closed
	defaultRetry  = time.Second    // a throttled answer that does not say how long
	maxRetryAfter = 24 * time.Hour // what a destination may ask for
	// outageAfter is how long failures in a row must have lasted to be an outage: at a thousand calls a second, five of
	// them mean little.
	outageAfter    = 200 * time.Millisecond
	unreachedPause = 200 * time.Millisecond // before a job that reached nobody is tried again
)

// settle decides what a sink's answer means for its job and for the sink's gate.
func (p *Pacer) settle(r sent) {
	q, s, j := r.queue, r.sink, r.job
	q.inFlight--
	s.inFlight--
	p.inFlight--
	if !r.forfeited {
		s.latency += (r.took.Microseconds() - s.latency) / 8
	}
	p.wake(s)
	if r.forfeited || r.result.Class == delivery.Withheld || r.result.Class == delivery.Duplicate {
		p.unsend(r.used)
	}
	if r.epoch != p.epoch {
		return // outlived a drain; the job has been read again
	}
	if r.forfeited {
		p.metrics.forfeited.Add(float64(j.Weight))
		p.putBack(q, j, 0)
		return
	}
	if j.Report != nil && r.result.Class <= delivery.Interrupted {
		j.Call = &delivery.Call{At: time.Now().Add(-r.took), Took: r.took, Status: r.result.Status}
	}
	switch r.result.Class {
	case delivery.Delivered:
		j.Attempt++
		j.Settle(delivery.OutcomeDelivered)
		p.healthy(q, s)
	case delivery.Throttled:
		d := r.result.RetryAfter
		if d <= 0 {
			d = defaultRetry
		}
		p.closeGate(s, min(d, maxRetryAfter), false)
		p.putBack(q, j, 0)
	case delivery.Unreachable:
		p.failed(q, s, false)
		p.putBack(q, j, unreachedPause)
	case delivery.Temporary:
		p.retry(j, r.result, p.failed(q, s, true))
	case delivery.Permanent:
		j.Attempt++
		p.healthy(q, s)
		p.dead(j, delivery.ReasonRefused, r.result.Detail)
	case delivery.Withheld:
		p.metrics.forfeited.Add(float64(j.Weight))
		p.putBack(q, j, r.result.RetryAfter)
	case delivery.Duplicate:
		j.Settle(delivery.OutcomeDuplicate)
	case delivery.Interrupted:
		p.doubt++
	}
}

// wake lets the queues that wait for a free call try again.
func (p *Pacer) wake(s *sinkState) {
	for free := s.max - s.inFlight; free > 0 && len(s.full) > 0; {
		q := s.full[0]
		s.full = s.full[1:]
		q.blocked = false
		p.schedule(q)
		if q.slotIndex >= 0 {
			free--
		}
	}
	if len(s.full) == 0 {
		s.full = nil
	}
}

// retry counts the attempt, unless the sink as a whole is failing, and lets the job wait for its back-off.
func (p *Pacer) retry(j *delivery.Job, r delivery.Result, outage bool) {
	if p.stopped {
		return // stays open; whoever reads it next tries again
	}
	if !outage {
		j.Attempt++
	}
	if j.Attempt >= p.opt.Retry.MaxAttempts {
		p.dead(j, delivery.ReasonAttemptsExhausted, r.Detail)
		return
	}
	p.tried(j)
	d := p.opt.Retry.backOff(max(1, j.Attempt))
	j.Due = time.Now().Add(d)
	p.wait(j, d, delivery.ReasonRetry)
}

// backOff is the delay after the n-th failed attempt: doubling, capped, varied by the jitter.
func (r Retry) backOff(n int) time.Duration {
	d := r.Max
	if n-1 < 30 {
		d = min(r.Initial<<(n-1), r.Max)
	}
	return time.Duration(float64(d) * (1 + r.Jitter*(2*rand.Float64()-1)))
}

// putBack returns a job that was not delivered through no fault of its own to the head of its queue.
func (p *Pacer) putBack(q *queue, j *delivery.Job, pause time.Duration) {
	if p.stopped {
		return // stays open; whoever reads it next sends it
	}
	if pause > 0 {
		now := time.Now()
		j.Due = now.Add(pause)
		if c := q.campaign; c != nil && !stays(j, c) && j.Due.Sub(j.ReadAt) > p.opt.MaxOpenAge {
			p.overflow(j, c) // in memory it would keep its offset open for as long as this goes on
		} else {
			p.wait(j, pause, delivery.ReasonRetry)
		}
		return
	}
	if q.campaign == nil || p.standing(q.campaign, time.Now()) != sending {
		if !p.placeOne(j, time.Now()) {
			p.giveBack(j)
		}
		return
	}
	q.pushFront(j)
	p.schedule(q)
	p.wantSlots(q)
}

// failed counts a failure of the sink itself; true means that it is an outage, which uses up no attempts. A sink that
// cannot be reached, or fails the jobs of several campaigns and succeeds with none, has its gate closed for all. What
// fails the jobs of one campaign alone may be what is in them: that campaign rests, and the others do not notice.
func (p *Pacer) failed(q *queue, s *sinkState, answered bool) (outage bool) {
	now := p.now()
	if s.failures == 0 {
		s.failing, s.several, s.failedAt = q.id, false, now
	}
	if q.failures == 0 {
		q.failedAt = now
	}
	long := func(failures int, since int64) bool {
		return failures >= p.opt.OutageAfter && now-since >= outageAfter.Microseconds()
	}
	s.several = s.several || !answered || s.failing != q.id
	s.failures++
	q.failures++
	switch {
	case s.probing || s.several && long(s.failures, s.failedAt):
		p.probe(s)
		p.askLater(q, s.closedUntil+p.quantum) // another campaign tries next
	case q.restsUntil > 0 || long(q.failures, q.failedAt):
		p.rest(q)
		s.failures = 0
	default:
		return false
	}
	return true
}

// probe closes the gate of a sink that does not work until the next job may try it.
func (p *Pacer) probe(s *sinkState) {
	if s.closedUntil <= p.now() {
		if !s.probing {
			p.log.Warn("the sink does not work; its gate is closed and probed once a second", "sink", s.id)
		}
		s.probing = true
		p.closeGate(s, probeEvery, true)
	}
}

// rest keeps the campaign from sending until its next job may be tried.
func (p *Pacer) rest(q *queue) {
	now := p.now()
	if q.restsUntil > now {
		return
	}
	if q.restsUntil == 0 {
		p.log.Warn("the sink fails this campaign's jobs alone; one a second is tried", "campaign", q.id, "sink", q.sink.id)
	}
	q.restsUntil = now + probeEvery.Microseconds()
	p.handBack(q)
	q.turnAt = q.restsUntil
	p.askLater(q, q.restsUntil)
}

// healthy notes that the sink works, and opens a gate that failures had closed.
func (p *Pacer) healthy(q *queue, s *sinkState) {
	s.failures, q.failures = 0, 0
	if q.restsUntil > 0 {
		q.restsUntil = 0
		p.log.Info("the sink takes this campaign's jobs again", "campaign", q.id, "sink", s.id)
		p.askLater(q, p.now())
	}
	if !s.probing && !s.elsewhere {
		return
	}
	s.elsewhere = false
	p.gate(s, gateCall{open: true})
	if !s.probing {
		return
	}
	s.probing, s.closedUntil = false, s.waitUntil
	p.log.Info("the sink works again", "sink", s.id)
	for _, q := range p.order {
		if q.sink == s {
			p.askLater(q, p.now())
		}
	}
}

// closeGate stops the sink here at once and on the other daemons with their next take, and hands the slots back.
func (p *Pacer) closeGate(s *sinkState, d time.Duration, probe bool) {
	until, before := p.now()+d.Microseconds(), s.closedUntil
	s.closedUntil = max(s.closedUntil, until)
	if !probe {
		s.waitUntil = max(s.waitUntil, until)
	}
	p.gate(s, gateCall{d: d, probe: probe})
	if before > p.now() && until-before < p.quantum {
		return // one of many answers that say the same
	}
	for _, q := range p.order {
		if q.sink == s {
			p.handBack(q)
			q.turnAt = s.closedUntil
			if q.askAt < s.closedUntil {
				p.askLater(q, s.closedUntil)
			}
		}
	}
}

// gateCall is one thing to tell the store of a sink's gate.
type gateCall struct {
	open  bool // what failures closed
	d     time.Duration
	probe bool
}

// gate tells the store of the sink's gate after what it was told before. Calls that say the same are merged.
func (p *Pacer) gate(s *sinkState, c gateCall) {
	if n := len(s.gateCalls); n > 0 && s.gateCalls[n-1].open == c.open && s.gateCalls[n-1].probe == c.probe {
		s.gateCalls[n-1].d = max(s.gateCalls[n-1].d, c.d)
	} else {
		s.gateCalls = append(s.gateCalls, c)
	}
	p.nextGateCall(s)
}

func (p *Pacer) nextGateCall(s *sinkState) {
	if s.gateCalling || len(s.gateCalls) == 0 {
		return
	}
	c := s.gateCalls[0]
	s.gateCalls = s.gateCalls[1:]
	s.gateCalling = true
	base := context.WithoutCancel(p.sendCtx)
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(base, takeTimeout)
		defer cancel()
		var err error
		if c.open {
			err = p.opt.Gates.OpenGate(ctx, s.id)
		} else {
			err = p.opt.Gates.CloseGate(ctx, s.id, c.d, c.probe)
		}
		if err != nil {
			p.log.Warn("other daemons were not told of the sink's gate; they find out themselves", "sink", s.id, "error", err)
		}
		p.inbox.do(func() {
			s.gateCalling = false
			p.nextGateCall(s)
		})
	})
}
