package pacer

import (
	"context"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestRevoke: jobs of a partition that is taken away are dropped where they wait, those in flight are settled, or dropped when they
// failed, and jobs of other partitions go on without a pause.
func TestRevoke(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		const each = 200
		f.receiver.setLatency(700 * time.Millisecond)
		gone, kept := newPartition("lanes/0"), newPartition("lanes/1")
		f.receiver.setAnswer(answering(delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}, func(j *delivery.Job) bool {
			return j.Offset%3 == 1 && revoked(source{partition: gone}) && j.ID[:7] == "lanes/0"
		}))
		for first := int64(0); first < each; first += 50 {
			f.offer(t, jobs(gone, delivery.FromTimer, "c", first, 50))
			f.offer(t, jobs(kept, delivery.FromTimer, "c", first, 50))
		}
		time.Sleep(time.Second)
		gone.revoke()
		if err := f.daemons[0].Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		sent := f.count("c")
		time.Sleep(time.Second)
		atLeast(t, f.count("c")-sent, 95, "sent in the second after")
		if n := gone.counts().settled + gone.dropped; n != each || gone.counts().settled == 0 {
			t.Errorf("%d of %d jobs were settled, %d dropped", gone.counts().settled, each, gone.dropped)
		}
		if n := gone.count(delivery.OutcomeRetried); n > 0 || gone.dropped == 0 {
			t.Errorf("%d were written to a timer, though others read them now", n)
		}
		time.Sleep(5 * time.Second)
		exactly(t, kept.count(delivery.OutcomeDelivered), each, "of the other partition were delivered")
		exactly(t, kept.dropped, 0, "dropped")
		atMost(t, f.count("c")-each-gone.counts().settled, 10, "sent of the partition that is gone")
	})
}

// TestAnOfferThatWasGivenUp: when its caller does not wait any more, no job is taken.
func TestAnOfferThatWasGivenUp(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		src, taken := newPartition("lanes/0"), 0
		for first := range int64(50) {
			if _, err := f.daemons[0].Offer(ctx, jobs(src, delivery.FromTimer, "c", first, 1)); err == nil {
				taken++
			}
		}
		time.Sleep(2 * time.Second)
		exactly(t, f.count("c"), taken, "jobs were sent, and %d taken", taken)
	})
}

// TestADrainWritesNothing: a job that fails while the daemon drains stays open for the next reader.
func TestADrainWritesNothing(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setLatency(500 * time.Millisecond)
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination, RetryAfter: time.Minute}))
		in := f.offered(t, delivery.FromIngress, "c", 20)
		time.Sleep(400 * time.Millisecond)
		f.drain(t)
		time.Sleep(time.Second)
		if to := f.outboxes[0].all(); len(to) > 0 || in.counts().settled > 0 || f.count("c") == 0 {
			t.Errorf("%d written, %d settled, %d sent", len(to), in.counts().settled, f.count("c"))
		}
	})
}

// TestRevokeBesideAnUnknownCampaign: a lane waits for a campaign that is not known when another partition is taken away.
func TestRevokeBesideAnUnknownCampaign(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		lane, gone := newPartition("lanes/0"), newPartition("lanes/1")
		must(t, f.offer(t, jobs(lane, delivery.FromLane, "unknown", 0, 1)), 1, "refused")
		gone.revoke()
		if err := f.daemons[0].Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.book.set(campaign("unknown", 100))
		time.Sleep(time.Second)
		atLeast(t, lane.counts().rooms, 1, "times the lane is asked for the job when its campaign is known")
	})
}
