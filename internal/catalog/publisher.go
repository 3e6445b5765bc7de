package catalog

import (
	"sync"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// publisher publishes the snapshots of a catalog. Its zero value has none. One goroutine publishes (or several, under
// a lock of their own); any number reads.
type publisher struct {
	current atomic.Pointer[delivery.Snapshot]

	mu          sync.Mutex // guards subscribers
	subscribers []retry.Signal
}

// Snapshot returns the newest state of the catalog, nil before the first load. A snapshot is immutable; use the same
// one for the whole of a decision.
func (p *publisher) Snapshot() *delivery.Snapshot { return p.current.Load() }

// Ready reports whether a state has been loaded.
func (p *publisher) Ready() bool { return p.current.Load() != nil }

// Subscribe returns a channel that receives a value after Snapshot has changed. Its capacity is one and signals
// coalesce, so a slow reader misses intermediate states but never the newest one. Subscribe before Run; the channel is
// never closed.
func (p *publisher) Subscribe() <-chan struct{} {
	changed := retry.NewSignal()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscribers = append(p.subscribers, changed)
	return changed
}

// publish sets the current snapshot and then signals the subscribers: each sees s or a later one.
func (p *publisher) publish(s *delivery.Snapshot) {
	p.current.Store(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, changed := range p.subscribers {
		changed.Send()
	}
}
