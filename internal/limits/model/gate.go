package model

// gate is a closed destination: nothing goes before until. In probing mode it stays in force after that, letting
// one job through per second, until it is opened or replaced.
type gate struct {
	until int64
	probe bool
}

// CloseGate closes a gate until the given store time. It never shortens a closure of the same mode. Probing gives way to
// a closure that a destination asked for, while that lasts longer.
func (s *Store) CloseGate(now int64, id string, until int64, probe bool) {
	s.clock(now)
	if g := s.gates[id]; g != nil {
		if g.probe == probe {
			until = max(until, g.until)
		} else if probe && g.until > until {
			return
		}
	}
	s.gates[id] = &gate{until: until, probe: probe}
}

// OpenGate opens a gate that was closed with probe; others stay closed until their time.
func (s *Store) OpenGate(id string) {
	if g := s.gates[id]; g != nil && g.probe {
		delete(s.gates, id)
	}
}
