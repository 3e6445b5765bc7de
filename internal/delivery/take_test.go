package delivery

import (
	"math"
	"testing"
)

// TestJobsAreAskedForWhole: a job begins within what is wanted, and ends within what there is.
func TestJobsAreAskedForWhole(t *testing.T) {
	a := Ask{Weights: []int64{3, 5, 2}}
	for _, c := range []struct{ want, begun, within int64 }{{0, 0, 0}, {1, 3, 0}, {3, 3, 3}, {4, 8, 3}, {8, 8, 8}, {9, 10, 8}, {50, 10, 10}} {
		if _, got := a.Jobs(c.want, math.MaxInt64); got != c.begun {
			t.Errorf("jobs that begin within %d have %d units, want %d", c.want, got, c.begun)
		}
		if _, got := a.Jobs(c.want, c.want); got != c.within {
			t.Errorf("jobs that end within %d have %d units, want %d", c.want, got, c.within)
		}
	}
}
