package consumer

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// most is the part of the budget, in quarters, that one share may fill. The rest is reserved for the other share: jobs
// of campaigns that send slowly from their lanes never stop intake, and a flood of new jobs never stops lanes.
const most = 3

// budget bounds the bytes that the process holds for jobs and for fetches in flight. It is divided into two shares,
// one of ingress and timers, whose jobs leave within seconds, and one of lanes. It is safe for concurrent use.
type budget struct {
	mu     sync.Mutex // guards everything below
	limit  int64
	used   int64
	shares [2]*share // the first is served first
}

// share is a part of the budget. Fetches wait for theirs in the order of their claims. For an answer larger than its claim see room in
// fetchMemory.
type share struct {
	*budget
	held    int64
	waiting *list.List // of *claim, in the order in which they asked
}

// claim is a fetch that waits for its share.
type claim struct {
	n     int64
	since time.Time
	ready chan struct{} // closed, under the lock, when it is granted
}

func newBudget(limit int64) *budget {
	b := &budget{limit: limit}
	for i := range b.shares {
		b.shares[i] = &share{budget: b, waiting: list.New()}
	}
	return b
}

// of returns the share that a place belongs to.
func (b *budget) of(from delivery.Place) *share {
	if from == delivery.FromLane {
		return b.shares[1]
	}
	return b.shares[0]
}

// acquire waits until n bytes are free. A claim is granted in any case when the share holds nothing, so that one above
// the limit does not wait for ever.
func (s *share) acquire(ctx context.Context, n int64) error {
	s.mu.Lock()
	if s.waiting.Len() == 0 && s.fits(n) {
		s.add(n)
		s.mu.Unlock()
		return nil
	}
	c := &claim{n: n, since: time.Now(), ready: make(chan struct{})}
	e := s.waiting.PushBack(c)
	s.mu.Unlock()
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.ready: // granted in the meantime
		s.add(-n)
	default:
		s.waiting.Remove(e)
	}
	s.grant() // a smaller one may have waited behind this one
	return ctx.Err()
}

// try adds n bytes if they are free and nothing waits for them.
func (s *share) try(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := s.waiting.Len() == 0 && s.fits(n)
	if ok {
		s.add(n)
	}
	return ok
}

// charge adds n bytes without waiting; a negative n gives them back.
func (s *share) charge(n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(n)
	if n < 0 {
		s.grant()
	}
}

// waitedFor is how long the first claim has waited; 0 if none does.
func (s *share) waitedFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.waiting.Front(); first != nil {
		return time.Since(first.Value.(*claim).since)
	}
	return 0
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// The methods below need the lock.

func (s *share) add(n int64) {
	s.held += n
	s.used += n
}

func (s *share) fits(n int64) bool {
	return s.held == 0 || s.held+n <= s.limit/4*most && s.used+n <= s.limit
}

// grant serves the claims that fit. Since no share takes more than its part, the first cannot starve the second.
func (b *budget) grant() {
	for _, s := range b.shares {
		for e := s.waiting.Front(); e != nil; e = s.waiting.Front() {
			c := e.Value.(*claim)
			if !s.fits(c.n) {
				break
			}
			s.waiting.Remove(e)
			s.add(c.n)
			close(c.ready)
		}
	}
}
