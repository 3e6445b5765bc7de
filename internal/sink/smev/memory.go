package smev

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
)

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
	mu    sync.Mutex // guards the entries
	state *lru.Cache[string, *entry]
}

type entry struct {
	progress progress
	busy     bool // somebody is at work on it
}

func newMemory(most int) *memory {
	state, _ := lru.New[string, *entry](most) // an error is about the size
	return &memory{state: state}
}

// begin returns how far a response has come. If mine is true, the caller is to go on with it, and to call end with how far it came.
func (m *memory) begin(id string) (known progress, mine bool, end func(progress)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, _ := m.state.Get(id)
	if e == nil {
		e = &entry{}
		m.state.Add(id, e)
	}
	if e.busy {
		return max(e.progress, stored), false, nil
	}
	e.busy = true
	return e.progress, true, func(p progress) {
		m.mu.Lock()
		defer m.mu.Unlock()
		e.progress, e.busy = p, false
	}
}
