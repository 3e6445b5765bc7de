package pacer

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// unreadFor is how long after this daemon others may read that a destination was changed. A gate closed meanwhile may be about the
	// old address; this daemon judges the new one itself.
	unreadFor = 3 * time.Second
	// staleGate is how much older than the last change of a gate what was read of it may be.
	staleGate = 3 * time.Second
)

// gateMove is a change of a gate: until when it is closed, or that it is open.
type gateMove struct {
	delivery.Gate
	told func(first bool) // nil, or called once the others are told: whether this daemon was the first to close it
}

// gates tell the other daemons of changes of gates. One call is under way at a time, since otherwise a late close could undo the open that
// came after it. Of each gate only the last change is told.
type gates struct {
	slots
	pending map[destinationKey]gateMove
	calling bool
	quietly int64 // local time before which no further failure is logged
}

// moveGate tells the other daemons that a gate is closed as its breaker is, or open if b is nil. A sink has a gate without a destination.
func (gs *gates) moveGate(gate destinationKey, b *breaker, told func(first bool), now instant) {
	g := gateMove{delivery.Gate{Sink: gate.sink, Destination: gate.name, At: now.wall}, told}
	if g.told == nil {
		g.told = gs.pending[gate].told
	}
	if b != nil {
		g.Cause, g.Until = b.cause, now.wall.Add(now.until(b.openUntil))
	}
	if gs.pending[gate] = g; gate.name == "" {
		gs.sinkByID(gate.sink).moving = true
	}
	gs.tellGates()
}

func (gs *gates) tellGates() {
	if gs.calling || len(gs.pending) == 0 {
		return
	}
	moves := gs.pending
	gs.pending, gs.calling = map[destinationKey]gateMove{}, true
	gs.background(func(ctx context.Context) {
		gates := make([]delivery.Gate, 0, len(moves))
		for _, g := range moves {
			gates = append(gates, g.Gate)
		}
		closed, err := gs.opt.Gates.MoveGates(ctx, gates)
		for _, g := range moves {
			if g.told != nil {
				g.told(err != nil || slices.Contains(closed, g.Sink))
			}
		}
		gs.inbox.do(func(now instant) {
			if gs.calling = false; err != nil && now.local >= gs.quietly {
				gs.quietly = now.in(logEvery)
				gs.opt.Logger.Warn("other daemons were not told of gates; they find out themselves", "gates", len(gates), "error", err)
			}
			for gate, g := range moves {
				if gate.name != "" {
					continue
				}
				s := gs.sinkByID(gate.sink)
				_, more := gs.pending[gate]
				s.moving = more || err != nil && !g.Until.IsZero() // then the store says that it is open, until the next probe closes or opens it
				if g.Until.IsZero() {                              // not before: the store would say that it is closed
					gs.askSoon(s, now)
				}
			}
			gs.tellGates()
		})
	})
}

// SeeGates tells the pacer which gates of sinks are closed by the store, as read at a moment ago. The sink whose gate another daemon or a
// person has opened there, however long it had asked to wait, is open here.
func (p *Pacer) SeeGates(closed []delivery.Gate) {
	p.inbox.do(func(now instant) {
		for _, s := range p.sinks {
			b := &s.breaker
			if s.moving || b.movedAt > 0 && now.local-b.movedAt <= staleGate.Microseconds() {
				continue
			}
			switch i := slices.IndexFunc(closed, func(g delivery.Gate) bool { return g.Sink == s.id }); {
			case i >= 0 && closed[i].Cause != delivery.GateFailing: // which each daemon finds out by itself
				b.seeGate(p.at(closed[i].Until).local, closed[i], now.local)
			case i < 0 && b.tripped && b.cause != delivery.GateFailing:
				p.opt.Logger.Info("the sink's gate was opened", "sink", s.id)
				*b = breaker{succeededAt: b.succeededAt}
				p.askSoon(s, now)
			}
		}
	})
}

// SeeDestinations tells the pacer what became of gates of destinations since the last call, as far as the store knows.
func (p *Pacer) SeeDestinations(gates []delivery.Gate) {
	if len(gates) == 0 {
		return
	}
	p.inbox.do(func(now instant) {
		for i := range gates {
			p.seeDestination(&gates[i], now)
		}
	})
}

func (p *Pacer) seeDestination(g *delivery.Gate, now instant) {
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
			d.seeGate(p.at(g.Until).local, *g, now.local)
		}
	case d == nil || !d.seeOpened(p.at(g.At).local, now.local):
		return
	default:
		p.proceed(d, now)
	}
	p.destinations.note(d, now.local)
}
