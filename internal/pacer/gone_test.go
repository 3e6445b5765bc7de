package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// An answer may come when its campaign has no sink any more.
func TestAnswersOfASinkThatIsGone(t *testing.T) {
	for _, class := range delivery.ResultClasses {
		c := campaign("c", 100)
		b := newBook(c)
		one(t, b, nil, func(t *testing.T, f *fleet) {
			f.receiver.setAnswer(always(delivery.Result{Class: class}))
			f.receiver.setLatency(time.Second)
			f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 100))
			time.Sleep(800 * time.Millisecond)
			before := f.count("c")
			next := c
			next.Sink = "none"
			b.set(next)
			time.Sleep(3 * time.Second)
			if n := f.count("c"); before < 50 || n > before+1 {
				t.Errorf("%s: %d jobs were sent, and then %d", class, before, n)
			}
		})
	}
}
