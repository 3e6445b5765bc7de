package measure

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestStallsAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var lag atomic.Int64 // nanoseconds, of the clock that the watch looks at
		now := func() time.Duration { return time.Since(start) + time.Duration(lag.Load()) }
		var w stallWatch
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.pulse(ctx, now); close(done) }()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.list(); len(got) != 0 {
			t.Fatalf("stalls in a quiet second: %v", got)
		}
		time.Sleep(pulseInterval / 2)
		const stall = 40 * time.Millisecond
		lag.Store(int64(stall)) // as if nothing had run for so long
		time.Sleep(time.Second)
		cancel()
		<-done
		got := w.list()
		if len(got) != 1 || got[0].To-got[0].From != stall {
			t.Fatalf("stalls: %v, want one of %s", got, stall)
		}
	})
}
