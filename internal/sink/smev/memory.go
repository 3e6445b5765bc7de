package smev

import "sync"

// progress is how far a response has come.
type progress uint8

const (
	unknown progress = iota
	stored           // it is in the topic
	acked            // and acknowledged
)

// memory remembers how far responses have come, by their MessageIDs: the latest ones, up to a number. It is safe for
// concurrent use.
type memory struct {
	mu    sync.Mutex
	most  int
	state map[string]*entry
	order []string // of the ids in state, the oldest first
}

type entry struct {
	progress progress
	busy     bool // somebody is at work on it
}

func newMemory(most int) *memory { return &memory{most: most, state: map[string]*entry{}} }

// begin returns how far a response has come. mine reports whether the caller is to go on with it, and then call end.
func (m *memory) begin(id string) (known progress, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.state[id]
	if e == nil {
		e = &entry{}
		m.state[id], m.order = e, append(m.order, id)
		if len(m.order) > m.most {
			delete(m.state, m.order[0])
			m.order = m.order[1:]
		}
	}
	if e.busy {
		return max(e.progress, stored), false
	}
	e.busy = true
	return e.progress, true
}

// end notes how far a response has come.
func (m *memory) end(id string, p progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.state[id]; e != nil {
		e.progress, e.busy = p, false
	}
}
