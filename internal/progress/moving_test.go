package progress

import (
	"testing"
	"time"
)

// TestMovingJobsCount: jobs that are between two partitions go on to count for some sums; jobs that were sent, or are gone for good, do not.
func TestMovingJobsCount(t *testing.T) {
	var p past
	for i, step := range []struct{ waiting, sent, moving int64 }{
		{1000, 0, 0}, {900, 100, 0}, // all of these were sent
		{400, 150, 450}, {850, 150, 0}, // half a thousand were on their way
		{850, 150, 0}, {100, 150, 750}, {100, 150, 750}, {100, 150, 750}, {100, 150, 750}, {100, 150, 0}, // cancelled
		{600, 150, 0}, {0, 750, 0},
	} {
		got := int64(0)
		for _, n := range p.moving(time.Unix(int64(i), 0), map[uint64]total{1: {waiting: step.waiting}}, map[uint64]tally{1: {Settled: step.sent}}) {
			got += n
		}
		if got != step.moving {
			t.Errorf("step %d: %d are moving, want %d", i, got, step.moving)
		}
	}
}
