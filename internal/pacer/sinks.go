package pacer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// sinkState is the scheduler's state of one sink.
type sinkState struct {
	id       string
	max      int      // calls that may be in flight
	calls    calls    // that are
	granted  int64    // slots that the campaigns of this sink have
	asked    int64    // slots that takes in flight may bring
	full     []*queue // queues whose slot came due while no call was free, in order
	fullAt   int64    // local time when there was last one; 0: never
	breaker  breaker
	gate     gateCalls
	destined bool // it has destinations of its own

	gateSeen      int64         // local time since when another daemon is known to have closed the gate; 0: none has
	maxRetryAfter time.Duration // how long a wait that the destination asks for is believed
	quietUntil    int64         // local time before which no further answer about waits or credentials is logged
	toldClosed    int64         // local time before which no further closed destination is logged
	followUps     followUps
}

// sawGate records that another daemon has closed the gate.
func (s *sinkState) sawGate(now int64) {
	if s.gateSeen == 0 && !s.breaker.tripped {
		s.gateSeen = now
	}
}

// leave takes a queue off the list of those that wait for a free call.
func (s *sinkState) leave(q *queue) {
	s.full = slices.DeleteFunc(s.full, func(o *queue) bool { return o == q })
}

// sinkOf is the state of the campaign's sink, nil when no such sink is configured.
func (p *Pacer) sinkOf(c *delivery.Campaign) *sinkState {
	id, ok := p.opt.Sinks.Resolve(c.Sink)
	if !ok {
		return nil
	}
	return p.sinkByID(id)
}

// sinkByID is the state of a configured sink.
func (p *Pacer) sinkByID(id string) *sinkState {
	for _, s := range p.sinks { // there are few
		if s.id == id {
			return s
		}
	}
	n, _ := p.opt.Sinks.Capacity(id)
	s := &sinkState{id: id, max: max(1, n), maxRetryAfter: cmp.Or(p.opt.MaxRetryAfter[id], defaultMaxRetryAfter),
		destined: p.opt.Destinations(id) != nil, followUps: newFollowUps(p.opt.FollowUps[id])}
	p.sinks = append(p.sinks, s)
	return s
}

// wake lets the queues that wait for a free call try again.
func (p *Pacer) wake(s *sinkState) {
	for free := s.max - s.calls.inFlight; free > 0 && len(s.full) > 0; {
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

// closeGate stops the sink here at once and on the other daemons with their next take, and hands the slots back.
func (p *Pacer) closeGate(s *sinkState, call gateCall) {
	p.publishGate(s, call)
	until := s.breaker.openUntil
	for _, q := range p.queues.list {
		if q.sink == s {
			p.refundSlots(q)
			q.turnAt, q.ask.paced = until, false
			if q.ask.at < until {
				p.takes.askLater(q, until)
			}
		}
	}
}

// gateCall is one change of a sink's gate in the store: closed, or opened after probes.
type gateCall struct {
	delivery.Closure
	open bool
	then func(first bool) // if set, is told whether this daemon was the first to close it
}

// gateCalls are the pending changes of a gate in the store, in order; one call is in flight at a time, since otherwise
// a late close could undo the open that came after it.
type gateCalls struct {
	waiting []gateCall
	calling bool
}

// add appends a call. Equal calls are merged.
func (g *gateCalls) add(c gateCall) {
	if n := len(g.waiting); n > 0 && g.waiting[n-1].open == c.open && g.waiting[n-1].Cause == c.Cause {
		last := &g.waiting[n-1]
		if c.For > last.For {
			last.Closure = c.Closure
		}
		if last.then == nil {
			last.then = c.then
		}
	} else {
		g.waiting = append(g.waiting, c)
	}
}

// next begins the next call, if there is one and none is in flight.
func (g *gateCalls) next() (c gateCall, ok bool) {
	if g.calling || len(g.waiting) == 0 {
		return gateCall{}, false
	}
	c, g.waiting, g.calling = g.waiting[0], g.waiting[1:], true
	return c, true
}

// idle reports whether the store knows of all changes.
func (g *gateCalls) idle() bool { return !g.calling && len(g.waiting) == 0 }

// publishGate changes the sink's gate in the store, after the changes before.
func (p *Pacer) publishGate(s *sinkState, c gateCall) {
	s.gate.add(c)
	p.publishNextGate(s)
}

func (p *Pacer) publishNextGate(s *sinkState) {
	c, ok := s.gate.next()
	if !ok {
		return
	}
	p.background(func(ctx context.Context) {
		var err error
		var changed bool
		if c.open {
			err = p.opt.Gates.OpenGate(ctx, s.id)
		} else {
			changed, err = p.opt.Gates.CloseGate(ctx, s.id, c.Closure)
		}
		if err != nil {
			p.opt.Logger.Warn("other daemons were not told of the sink's gate; they find out themselves", "sink", s.id, "error", err)
		}
		if c.then != nil {
			c.then(changed || err != nil)
		}
		p.inbox.do(func(now instant) {
			s.gate.calling = false
			if p.publishNextGate(s); c.open { // not before: the store would say that it is closed
				p.askSoon(s, now)
			}
		})
	})
}

// staleGate is how much older than the last change of a gate what was read of it may be.
const staleGate = 3 * time.Second

// SeeGates tells the pacer which gates are closed by the store, as read at a moment ago. A sink whose gate somebody has opened
// there, however long its destination had asked to wait, is open here.
func (p *Pacer) SeeGates(closed []delivery.Gate) {
	p.inbox.do(func(now instant) {
		shut := map[string]delivery.Gate{}
		for _, g := range closed {
			shut[g.Sink] = g
		}
		for _, s := range p.sinks {
			g, isShut := shut[s.id]
			b := &s.breaker
			obeyed := isShut && g.Cause != delivery.GateFailing
			if s.followUps.shut, s.followUps.halfOpen = 0, obeyed; obeyed {
				s.followUps.shut = now.in(g.Until.Sub(now.wall))
			}
			switch {
			case isShut:
				s.sawGate(now.local)
			case b.open(now.local) && b.cause == delivery.GateThrottled && s.gate.idle() && now.local-b.movedAt > staleGate.Microseconds():
				p.opt.Logger.Info("the sink's gate was opened", "sink", s.id)
				*b = breaker{succeededAt: b.succeededAt}
				p.askSoon(s, now)
			default:
				s.gateSeen = 0
			}
		}
	})
}
