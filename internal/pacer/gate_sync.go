package pacer

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maxTold bounds the gates of destinations of which the others are told in one call, and maxPending those that wait for it.
	maxGates, maxPending = 1000, 10_000
)

// unreadFor is how long after this daemon others may read that a destination was changed. What closes it meanwhile may be what they have
// found of the old address; and what is found of the new one, this daemon finds itself.
const unreadFor = 3 * time.Second

// gateUpdates are the changes of destinations' gates of which the other daemons have not been told. One call is under way at a time, and of
// each gate only the last change is told.
type gateUpdates struct {
	pending map[destinationKey]delivery.DestinationGate
	calling bool
}

// publishDestination tells the other daemons that a destination is closed for a time, or, with no closure, that it works.
func (p *Pacer) publishDestination(d *destination, c *delivery.Closure, now instant) {
	t := &p.destinations.updates
	if p.opt.DestinationGates == nil || len(t.pending) >= maxPending {
		return
	}
	g := delivery.DestinationGate{Gate: delivery.Gate{Sink: d.sink}, Destination: d.name, At: now.wall}
	if c != nil {
		g.Cause, g.Until = c.Cause, now.wall.Add(c.For)
	}
	t.pending[d.destinationKey] = g
	p.publishDestinations()
}

func (p *Pacer) publishDestinations() {
	t := &p.destinations.updates
	if t.calling || len(t.pending) == 0 {
		return
	}
	gates := make([]delivery.DestinationGate, 0, min(len(t.pending), maxGates))
	for key, g := range t.pending {
		if len(gates) == maxGates {
			break
		}
		gates = append(gates, g)
		delete(t.pending, key)
	}
	t.calling = true
	p.background(func(ctx context.Context) {
		if err := p.opt.DestinationGates.MoveDestinations(ctx, gates); err != nil {
			p.opt.Logger.Debug("other daemons were not told of the gates of destinations; they find out themselves", "gates", len(gates), "error", err)
		}
		p.inbox.do(func(instant) {
			p.destinations.updates.calling = false
			p.publishDestinations()
		})
	})
}

// SeeDestinations tells the pacer what became of gates of destinations since the last call, as far as the store knows.
func (p *Pacer) SeeDestinations(gates []delivery.DestinationGate) {
	if len(gates) == 0 {
		return
	}
	p.inbox.do(func(now instant) {
		for i := range gates {
			p.seeDestination(&gates[i], now)
		}
	})
}

func (p *Pacer) seeDestination(g *delivery.DestinationGate, now instant) {
	if id, ok := p.opt.Sinks.Resolve(g.Sink); !ok || id != g.Sink || !p.sinkByID(id).destined {
		return
	}
	key := destinationKey{g.Sink, g.Destination}
	d := p.destinations.byKey[key]
	switch {
	case g.Cause == delivery.GateFailing && !g.Until.IsZero(): // each daemon finds that out by itself
		return
	case !g.Until.IsZero():
		if d == nil && !g.Until.After(now.wall) {
			return
		}
		d = p.destinations.get(key)
		d.at = p.sinkByID(g.Sink)
		p.limitsOf(d, now)
		if d.renewedAt == 0 || p.at(g.At).local > d.renewedAt+unreadFor.Microseconds() { // otherwise it may be about what it was
			d.seeGate(p.at(g.Until).local, g.Gate, now.local)
		}
	case d == nil || !d.seeOpened(p.at(g.At).local, now.local):
		return
	default:
		p.proceed(d, now)
	}
	p.destinations.note(d, now.local)
}

// logClosedDestination logs that a destination was closed: one of many in a while.
func (p *Pacer) logClosedDestination(s *sinkState, d *destination, detail string, now instant) {
	if now.local < s.toldClosed {
		return
	}
	s.toldClosed = now.in(logEvery)
	p.opt.Logger.Warn("a destination of the sink does not take its jobs; they wait, and it is tried again and again; the next minute's are not logged",
		"sink", s.id, "destination", d.name, "cause", d.cause.String(), "closed", max(1, len(p.destinations.shut[s.id])), "detail", detail)
}
