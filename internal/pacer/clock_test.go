package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestTheWallClockMayBeSet after the daemon has started: times of the local clock are as far from now by the wall clock.
func TestTheWallClockMayBeSet(t *testing.T) {
	wall := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	now := instant{local: 1_000_000_000, wall: wall} // whatever the wall clock was at the start
	if got := now.timeOf(1_005_000_000); !got.Equal(wall.Add(5 * time.Second)) {
		t.Errorf("in five seconds it is %s", got)
	}
	j := &delivery.Job{Reading: delivery.Reading{From: delivery.FromTimer}}
	j.Reason, j.EnqueuedAt = string(delivery.ReasonRetry), delivery.StampOf(wall.Add(-5*time.Second))
	exactly(t, now.lastTry(j), 995_000_000, "a job of five seconds ago was tried at")
}
