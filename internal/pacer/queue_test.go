package pacer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestJobsGoInTheOrderThatIsAskedFor: the weights and the lengths in an ask are those of the jobs that take the slots.
func TestJobsGoInTheOrderThatIsAskedFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := newQueue("c")
		for range rapid.IntRange(1, 40).Draw(rt, "jobs") {
			j := &delivery.Job{Weight: rapid.Int64Range(1, 5).Draw(rt, "weight"), Reading: delivery.Reading{From: delivery.FromLane}}
			switch rapid.IntRange(0, 5).Draw(rt, "rank") {
			case 0:
				j.Priority = delivery.PriorityHigh
			case 1, 2:
				j.From = delivery.FromTimer
			}
			q.push(j)
			if rapid.IntRange(0, 3).Draw(rt, "go") == 0 {
				q.pop()
			}
		}
		var asked, went []*delivery.Job
		q.each(func(j *delivery.Job) bool { asked = append(asked, j); return true })
		for !q.empty() {
			if j := q.head(); j != q.pop() {
				rt.Fatal("another goes than the head")
			} else {
				went = append(went, j)
			}
		}
		if !slices.Equal(asked, went) || q.units != 0 || q.heavy != 0 {
			rt.Fatalf("%d asked for, %d went, or in another order; %d units left", len(asked), len(went), q.units)
		}
	})
}
