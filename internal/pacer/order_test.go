package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestBacklogIsNotOvertaken: once jobs of a campaign have gone to its lane, jobs read behind them go there as well, even while the
// backlog is not counted yet. After a while without any, they are sent at once again.
func TestBacklogIsNotOvertaken(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		p := newPartition("jobs/0")
		inLane := func() int { return f.outboxes[0].count(delivery.ToLane, delivery.ReasonOverflow) }
		f.offer(t, jobs(p, delivery.FromIngress, "c", 0, 600))
		before := inLane()
		if before < 50 || before > 150 {
			t.Fatalf("%d of 600 went to the lane", before)
		}
		time.Sleep(time.Second)
		f.offer(t, jobs(p, delivery.FromIngress, "c", 600, 50))
		exactly(t, inLane()-before, 50, "behind the backlog went to the lane")
		time.Sleep(2 * knownAfter)
		before = inLane()
		f.offer(t, jobs(p, delivery.FromIngress, "c", 650, 50))
		exactly(t, inLane()-before, 0, "went to the lane long after")
	})
}

// TestNextJobsStay: a queue as long as may wait here is sent whole, though its last jobs are a little late: in the lane they
// would be behind all others.
func TestNextJobsStay(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("jobs/0"), delivery.FromIngress, "c", 0, 500))
		for _, down := range []bool{false, true, false} { // a moment without slots
			f.store.setDown(down)
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToLane, delivery.ReasonOverflow), 0, "went to the lane")
		exactly(t, f.count("c"), 500, "sent")
	})
}
