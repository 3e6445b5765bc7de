package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestPace: the pace of a sink is known from outside, follows a destination that becomes slow within seconds, and one that
// becomes fast at once; a slow answer and calls that fail do not count.
func TestPace(t *testing.T) {
	c := campaign("c", 200)
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		p, offset := f.daemons[0], int64(0)
		pace := func() time.Duration {
			latency, _ := p.Pace(&c)
			return latency
		}
		send := func(latency, d time.Duration) {
			f.receiver.mu.Lock()
			f.receiver.latency = func() time.Duration { return latency }
			f.receiver.mu.Unlock()
			for range d / (100 * time.Millisecond) {
				f.offer(t, jobs(newPartition("jobs/0"), delivery.FromIngress, "c", offset, 20))
				offset += 20
				time.Sleep(100 * time.Millisecond)
			}
		}
		near := func(what string, want time.Duration) {
			t.Helper()
			if got := pace(); got < want/2 || got > want*3/2 {
				t.Errorf("%s: %v, want about %v", what, got, want)
			}
		}
		if got := pace(); got != 0 {
			t.Errorf("%v before the first call", got)
		}
		send(10*time.Millisecond, 15*time.Second)
		near("at first", 10*time.Millisecond)
		send(400*time.Millisecond, 500*time.Millisecond)
		if got := pace(); got > 100*time.Millisecond {
			t.Errorf("%v after half a second of slowness", got)
		}
		send(400*time.Millisecond, 20*time.Second)
		near("slow", 400*time.Millisecond)
		f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result { return delivery.Result{Class: delivery.Unreachable} })
		send(4*time.Second, 20*time.Second)
		near("calls that fail", 400*time.Millisecond)
		f.receiver.setAnswer(nil)
		send(10*time.Millisecond, 20*time.Second)
		near("fast again", 10*time.Millisecond)
		c.MaxInFlight = 3
		if _, calls := p.Pace(&c); calls != 3 {
			t.Errorf("%d calls in flight, of a campaign that has 3", calls)
		}
		c.Sink = "none"
		if latency, calls := p.Pace(&c); latency != 0 || calls != 0 {
			t.Errorf("%v and %d calls of a sink that is not configured", latency, calls)
		}
	})
}
