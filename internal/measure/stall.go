package measure

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	pulses        = 4
	pulseInterval = 2 * time.Millisecond
	// MinStall is the shortest delay that is recorded; timers are never exact.
	MinStall  = 3 * time.Millisecond
	maxStalls = 100_000 // 1.6 MB
)

// stallWatch detects that this process does not run: a few goroutines that only sleep record when they wake late. On a
// busy machine everything in this process happens late by as much, and instants are known no more precisely.
type stallWatch struct {
	mu     sync.Mutex // guards stalls
	stalls []Interval // in no order
}

// run watches until the context ends; now is the receiver's clock.
func (w *stallWatch) run(ctx context.Context, now func() time.Duration) {
	var wg sync.WaitGroup
	for range pulses {
		wg.Go(func() { w.pulse(ctx, now) })
	}
	wg.Wait()
}

func (w *stallWatch) pulse(ctx context.Context, now func() time.Duration) {
	for {
		due := now() + pulseInterval
		if retry.Sleep(ctx, pulseInterval) != nil {
			return
		}
		runtime.Gosched() // a timer's goroutine runs before waiting ones; yield once, to wait as they do
		if woke := now(); woke-due >= MinStall {
			w.add(Interval{From: due, To: woke})
		}
	}
}

func (w *stallWatch) add(stall Interval) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.stalls) < maxStalls {
		w.stalls = append(w.stalls, stall)
	}
}

// list returns the stalls so far, in order of their beginning.
func (w *stallWatch) list() []Interval {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(slices.Values(w.stalls), byStart)
}
