package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is an exponential back-off: the n-th failure in a row is followed by a wait of Initial * 2^(n-1), at most Max,
// varied by up to Jitter of it in both directions. It holds no state: callers keep the number of failures, since some of
// them keep it in a job's record and others in a heap. The zero value never waits.
type Backoff struct {
	Initial time.Duration
	Max     time.Duration
	Jitter  float64 // 0 for none, to 1: waits of nothing to twice as long as planned
}

// Delay is how long to wait after that many failures in a row; fewer than one count as one. It never exceeds
// Max * (1 + Jitter).
func (b Backoff) Delay(failures int) time.Duration {
	d := b.Initial
	for i := 1; i < failures && d < b.Max; i++ {
		d *= 2 // cannot overflow: Max bounds it before it could
	}
	d = min(d, b.Max)
	return d + time.Duration(b.Jitter*(2*rand.Float64()-1)*float64(d))
}

// Sleep waits for d. It returns the context's error if that ends first, without waiting if it has ended already.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Every calls do at each tick of d until ctx ends; the first call comes after d.
func Every(ctx context.Context, d time.Duration, do func(now time.Time)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			do(now)
		}
	}
}

// Signal wakes a goroutine that waits for something to do, by receiving from it. It holds one token: signals that come
// before the token is received are one.
type Signal chan struct{}

// NewSignal makes a signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
