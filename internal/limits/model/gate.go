package model

import "github.com/pacer/pacer/internal/delivery"

// gate is a closed destination: nothing is sent before until, and then one job a second, until it is opened or replaced.
type gate struct {
	until int64
	cause delivery.GateCause
	// asked says that the destination asked to wait until then, and no job has been let through since.
	asked bool
}

// CloseGate closes a gate until the given store time, and returns whether it was not closed for this cause before. A
// wait that the destination asked for is never shortened; it replaces any other closure.
func (s *Store) CloseGate(now int64, id string, until int64, cause delivery.GateCause) (changed bool) {
	asked := cause == delivery.GateThrottled
	s.clock(now)
	next := &gate{until: until, cause: cause, asked: asked}
	if g := s.gates[id]; g != nil {
		changed = g.cause != cause
		if g.asked && g.until > until {
			return changed
		}
		if !g.asked && !asked {
			next.until = max(until, g.until)
		}
	} else {
		changed = true
	}
	s.gates[id] = next
	return changed
}

// OpenGate opens a gate.
func (s *Store) OpenGate(id string) { delete(s.gates, id) }

// gate is the ask's gate while it is closed or half-open, nil otherwise. That a sink does not work is only shown: each daemon finds it out.
func (t *taking) gate() *gate {
	g := t.store.gates[t.ask.Gate]
	if t.ask.Gate == "" || g != nil && g.cause == delivery.GateFailing {
		return nil
	}
	return g
}
