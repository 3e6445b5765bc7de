package app

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheServiceManagerIsTold: ready once, what is waited for, and of progress while there is any.
func TestTheServiceManagerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the next four
		ready, why, healthy := false, "redis has not answered yet", true
		var told []string
		locked := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		s := &watchdog{
			ready: func() (ok bool, is string) {
				locked(func() { ok, is = ready, why })
				return ok, is
			},
			stalled: func() (is string, over time.Duration) {
				locked(func() {
					if !healthy {
						is = "the scheduler has not turned for 31s"
					}
				})
				return is, 0
			},
			notify: func(state string) { locked(func() { told = append(told, state) }) }, within: 30 * time.Second, patience: time.Minute, ends: 25 * time.Second,
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		expect := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			locked(func() {
				if !slices.Equal(told, want) {
					t.Errorf("told %q, want %q", told, want)
				}
				told = nil
			})
		}
		expect(500*time.Millisecond, "STATUS=redis has not answered yet", "WATCHDOG=1")
		expect(time.Second, "WATCHDOG=1")
		locked(func() { ready, why = true, "ready" })
		expect(time.Second, "READY=1", "STATUS=ready", "WATCHDOG=1")
		locked(func() { healthy = false })
		expect(time.Second)
		locked(func() { ready, why = false, "draining" })
		s.stopping()
		expect(time.Second, "STOPPING=1", "EXTEND_TIMEOUT_USEC=30000000", "STATUS=draining")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
