package view

import (
	"context"
	"sync"
	"time"
)

// background are the goroutines that ask sources for more than whoever has begun them: they outlive the request, but not their owner, who
// ends them. The zero value has none. Safe for concurrent use.
type background struct {
	mu      sync.Mutex // guards what follows
	last    int
	stops   map[int]context.CancelFunc // of those that are under way
	ended   bool
	allDone chan struct{} // closed when they have ended and none is under way
}

// start has something done in a goroutine of its own, within a time and until the end. false: the end has come, and it is not done.
func (e *background) start(ctx context.Context, within time.Duration, do func(context.Context)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within) // others will be shown it as well
	e.last++
	number := e.last
	if e.stops == nil {
		e.stops = map[int]context.CancelFunc{}
	}
	e.stops[number] = cancel
	go func() {
		defer e.over(number)
		do(ctx)
	}()
	return true
}

// over notes that one is done.
func (e *background) over(number int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stops[number]()
	delete(e.stops, number)
	if e.ended && len(e.stops) == 0 {
		close(e.allDone)
	}
}

// end stops those that are under way, and waits for them, but not for sources that hang. No more are started.
func (e *background) end() {
	e.mu.Lock()
	e.ended, e.allDone = true, make(chan struct{})
	for _, stop := range e.stops {
		stop()
	}
	if len(e.stops) == 0 {
		close(e.allDone)
	}
	e.mu.Unlock()
	select {
	case <-e.allDone:
	case <-time.After(lookWithin + time.Second):
	}
}
