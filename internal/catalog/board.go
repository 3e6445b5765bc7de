package catalog

import (
	"sync"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
)

// board is where a catalog publishes its snapshots. Its zero value holds none. One goroutine publishes (or several
// under a lock of their own); any number reads.
type board struct {
	current atomic.Pointer[delivery.Snapshot]

	mu          sync.Mutex // guards subscribers
	subscribers []chan struct{}
}

// Snapshot is the newest state of the catalog, nil before the first load. It never changes; hold on to it for as
// long as one decision takes.
func (b *board) Snapshot() *delivery.Snapshot { return b.current.Load() }

// Ready tells whether a state has ever been loaded.
func (b *board) Ready() bool { return b.current.Load() != nil }

// Subscribe returns a channel on which the catalog says that Snapshot has changed. Its capacity is one and
// signals coalesce, so a slow reader misses states but never the newest one. Subscribe before Run; the channel is
// never closed.
func (b *board) Subscribe() <-chan struct{} {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers = append(b.subscribers, ch)
	return ch
}

// publish makes s the current snapshot and then tells the subscribers: whoever is woken sees s or a later one.
func (b *board) publish(s *delivery.Snapshot) {
	b.current.Store(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ch := range b.subscribers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// refresh replaces the current snapshot by one that says the same, only later. Nobody is woken.
func (b *board) refresh(s *delivery.Snapshot) { b.current.Store(s) }
