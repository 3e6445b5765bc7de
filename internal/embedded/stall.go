package embedded

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	pulses        = 4
	pulseInterval = 2 * time.Millisecond
	// minStall is the shortest delay worth remembering; timers are never exact.
	minStall  = 3 * time.Millisecond
	maxStalls = 100_000 // 1.6 MB
)

// stallWatch notices when this process is kept from running: a few goroutines that do nothing but sleep write down
// when they woke late. On a machine whose processors are busy with other things, whatever happens here happens late by
// as much, and instants are known no better than that.
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
	timer := time.NewTimer(pulseInterval)
	defer timer.Stop()
	for due := now() + pulseInterval; ; due = now() + pulseInterval {
		timer.Reset(pulseInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		runtime.Gosched() // a timer's goroutine runs before those that wait; to wait as they do, it stands in line once more
		if woke := now(); woke-due >= minStall {
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

// list is what was noticed so far, in order of its beginning.
func (w *stallWatch) list() []Interval {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(slices.Values(w.stalls), byStart)
}
