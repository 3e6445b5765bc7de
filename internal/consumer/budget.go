package consumer

import (
	"container/list"
	"context"
	"sync"
)

// laneShare is the part of the budget, in quarters, that lanes may fill. The rest stays for ingress and timers, whose
// jobs move on within seconds, so that campaigns which send slowly from their lanes never stop intake.
const laneShare = 3

// budget bounds the bytes that the process holds for jobs and for fetches in flight. Fetches wait for their part in
// the order in which they asked; jobs that turn out larger than what was reserved for them are charged without
// waiting, because they are in memory already. Safe for use by several goroutines.
type budget struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	lanes   int64        // the part of used that lanes hold
	waiting [2]list.List // of *claim, by whether a lane asks; first come, first served
}

// claim is a fetch waiting for its part.
type claim struct {
	n     int64
	ready chan struct{} // closed, under the lock, when the claim is granted
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// acquire waits until n bytes are free. A claim above the limit is granted when nothing else is held.
func (b *budget) acquire(ctx context.Context, n int64, lane bool) error {
	b.mu.Lock()
	queue := &b.waiting[index(lane)]
	if queue.Len() == 0 && b.fits(n, lane) {
		b.add(n, lane)
		b.mu.Unlock()
		return nil
	}
	c := &claim{n: n, ready: make(chan struct{})}
	e := queue.PushBack(c)
	b.mu.Unlock()
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.ready: // granted in the meantime
		b.add(-n, lane)
	default:
		queue.Remove(e)
	}
	b.grant() // a smaller claim may have waited behind this one
	return ctx.Err()
}

// charge adds n bytes without waiting; a negative n gives them back.
func (b *budget) charge(n int64, lane bool) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(n, lane)
	if n < 0 {
		b.grant()
	}
}

func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// crowded tells whether a fetch waits for its part.
func (b *budget) crowded(lane bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[index(lane)].Len() > 0
}

// The methods below need the lock.

func (b *budget) add(n int64, lane bool) {
	b.used += n
	if lane {
		b.lanes += n
	}
}

func (b *budget) fits(n int64, lane bool) bool {
	if lane && b.lanes > 0 && b.lanes+n > b.limit/4*laneShare {
		return false
	}
	return b.used == 0 || b.used+n <= b.limit
}

func (b *budget) grant() {
	for _, lane := range [...]bool{false, true} {
		queue := &b.waiting[index(lane)]
		for e := queue.Front(); e != nil; e = queue.Front() {
			c := e.Value.(*claim)
			if !b.fits(c.n, lane) {
				break
			}
			queue.Remove(e)
			b.add(c.n, lane)
			close(c.ready)
		}
	}
}

func index(lane bool) int {
	if lane {
		return 1
	}
	return 0
}
