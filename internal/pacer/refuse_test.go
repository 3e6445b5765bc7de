package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// heavy makes jobs of ingress that need 4 KiB of memory each.
func heavy(src *partition, campaign string, n int) []*delivery.Job {
	list := jobs(src, delivery.FromIngress, campaign, 0, n)
	for _, j := range list {
		j.Size = 4 << 10
	}
	return list
}

// TestWhatIsSentSoonIsNotRelayed: a backlog that is larger than the memory of its campaign, and is sent as fast as it could be
// moved, waits in ingress instead of going through a lane.
func TestWhatIsSentSoonIsNotRelayed(t *testing.T) {
	one(t, newBook(campaign("c", 20_000)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 256
		src := newPartition("in/0")
		exactly(t, len(f.hand(t, src, heavy(src, "c", 20_000), 10*time.Second)), 0, "refused after ten seconds")
		time.Sleep(3 * time.Second)
		atMost(t, len(f.outboxes[0].all()), 0, "jobs went through a lane")
		exactly(t, src.count(delivery.OutcomeDelivered), 20_000, "sent")
	})
}

// TestABacklogDoesNotHoldUpWhatLiesBehindIt: a backlog of 40 s that is larger than the memory of its campaign leaves the
// partition sooner than it is sent.
func TestABacklogDoesNotHoldUpWhatLiesBehindIt(t *testing.T) {
	one(t, newBook(campaign("c", 300), campaign("behind", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 256
		src := newPartition("in/0")
		list := append(heavy(src, "c", 12_000), jobs(src, delivery.FromIngress, "behind", 12_000, 10)...)
		for _, j := range list {
			j.Size = max(j.Size, 20<<10)
		}
		exactly(t, len(f.hand(t, src, list, 2*time.Second)), 0, "refused after two seconds")
		time.Sleep(time.Second)
		exactly(t, f.count("behind"), 10, "jobs behind the backlog are sent")
	})
}

// TestIntakeDoesNotWaitForASlowSink: jobs that seemed to be sent soon, and are not, leave ingress within two seconds, and the
// others follow at once.
func TestIntakeDoesNotWaitForASlowSink(t *testing.T) {
	one(t, newBook(campaign("c", 20_000)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 256
		src := newPartition("in/0")
		list := heavy(src, "c", 30_000)
		exactly(t, len(f.hand(t, src, list[:10_000], 10*time.Second)), 0, "refused")
		f.receiver.setLatency(time.Minute)
		began := time.Now()
		exactly(t, len(f.hand(t, src, list[10_000:], time.Minute)), 0, "refused while the sink is stuck")
		atMost(t, time.Since(began), 2500*time.Millisecond, "ingress waited for")
		atLeast(t, len(f.outboxes[0].all()), 15_000, "jobs went to a lane")
	})
}

// TestIntakeDoesNotWaitForAPausedCampaign: neither when it is paused while jobs of it are refused.
func TestIntakeDoesNotWaitForAPausedCampaign(t *testing.T) {
	one(t, newBook(campaign("c", 20_000)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 256
		src := newPartition("in/0")
		list := heavy(src, "c", 20_000)
		left := f.hand(t, src, list, 300*time.Millisecond)
		if len(left) == 0 {
			t.Fatal("nothing is refused")
		}
		f.book.set(as(delivery.StatusPaused, campaign("c", 20_000)))
		began := time.Now()
		if left = f.hand(t, src, left, time.Minute); len(left) > 0 || time.Since(began) > 500*time.Millisecond {
			t.Errorf("%d are refused %s after the pause", len(left), time.Since(began))
		}
	})
}
