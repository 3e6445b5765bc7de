package pacer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestRevoke: jobs of a partition that is taken away are given back where they wait, those in flight are settled, or go to a timer if they
// fail, and jobs of other partitions go on without a pause.
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
		is := gone.counts()
		if is.settled+is.released != each || is.settled == 0 {
			t.Errorf("%d of %d jobs were settled, %d given back", is.settled, each, is.released)
		}
		atLeast(t, gone.count(delivery.OutcomeRetried), 1, "failed and were written to a timer")
		atLeast(t, is.released, 1, "given back")
		time.Sleep(5 * time.Second)
		exactly(t, kept.count(delivery.OutcomeDelivered), each, "of the other partition were delivered")
		exactly(t, kept.counts().released, 0, "given back")
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

// TestAttemptsOutliveARevocation: a job that has failed, before it or during it, goes to a timer with its attempt and its back-off. If it
// is another daemon's by now, it stays where it was read.
func TestAttemptsOutliveARevocation(t *testing.T) {
	for name, c := range map[string]struct {
		latency, until time.Duration
		lost           bool
	}{
		"in flight":            {latency: 500 * time.Millisecond, until: 400 * time.Millisecond},
		"back off":             {latency: time.Millisecond, until: 400 * time.Millisecond},
		"after two attempts":   {latency: time.Millisecond, until: 4 * time.Second},
		"in flight, of others": {latency: 500 * time.Millisecond, until: 400 * time.Millisecond, lost: true},
		"back off, of others":  {latency: time.Millisecond, until: 400 * time.Millisecond, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			var lost atomic.Bool
			one(t, newBook(campaign("c", 100)), func(o *Options) {
				o.Retry.Initial, o.Owns = 3*time.Second, func(time.Time) bool { return !lost.Load() }
			}, func(t *testing.T, f *fleet) {
				f.receiver.setLatency(c.latency)
				f.receiver.setAnswer(always(delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}))
				in := f.offered(t, delivery.FromIngress, "c", 20)
				time.Sleep(c.until)
				lost.Store(c.lost)
				f.revoke(t, in)
				sent := map[string]int{}
				for _, s := range f.receiver.history() {
					sent[s.id]++
				}
				if c.lost {
					sent = nil
				}
				exactly(t, in.count(delivery.OutcomeRetried), len(sent), "in timers")
				for _, p := range f.outboxes[0].puts {
					if p.to.Kind != delivery.ToTimer || p.job.Attempt != sent[p.job.ID] {
						t.Errorf("%s was sent %d times, and goes on as %+v with %d attempts", p.job.ID, sent[p.job.ID], p.to, p.job.Attempt)
					}
				}
			})
		})
	}
}

// TestAWaitOutlivesARevocation: a job whose destination has asked to wait for some seconds goes to a timer until then, though it has used no attempt.
func TestAWaitOutlivesARevocation(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: 4 * time.Second}))
		in := f.offered(t, delivery.FromIngress, "c", 20)
		time.Sleep(time.Second)
		f.revoke(t, in)
		exactly(t, in.count(delivery.OutcomeRetried), 20, "in timers")
		for _, p := range f.outboxes[0].puts {
			within(t, time.Until(p.to.Due), time.Second, 3*time.Second, "it waits on, %s", p.to.Reason)
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
