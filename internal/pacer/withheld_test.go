package pacer

import (
	"context"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A job that pacer itself holds back has not failed, and neither has its sink: no attempt is used up, no gate closes.
func TestWithheldJobsAreSentLater(t *testing.T) {
	const n = 20 // far more than close a gate
	pauses := map[string]time.Duration{"at once": 0, "after a pause": 300 * time.Millisecond}
	for name, pause := range pauses {
		t.Run(name, func(t *testing.T) {
			one(t, newBook(campaign("c", 1000)), nil, func(t *testing.T, f *fleet) {
				seen := map[string]int{}
				f.receiver.setLatency(2 * time.Millisecond) // of the decision
				f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
					seen[j.ID]++
					if seen[j.ID] < 3 {
						return delivery.Result{Class: delivery.Withheld, RetryAfter: pause}
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				src := f.offered(t, delivery.FromIngress, "c", n)
				time.Sleep(2*pause + 500*time.Millisecond)
				must(t, src.count(delivery.OutcomeDelivered), n, "delivered")
				first := map[string]int64{}
				for _, a := range f.receiver.history() {
					exactly(t, a.attempt, 0, "%s: attempts used up", a.id)
					if before, again := first[a.id]; again && a.at-before < pause.Microseconds() {
						t.Errorf("%s: again after %d µs, before the pause of %s was over", a.id, a.at-before, pause)
					}
					first[a.id] = a.at
				}
			})
		})
	}
}

// However often a job is withheld, it does not stay in ingress.
func TestWithheldJobsLeaveIngress(t *testing.T) {
	one(t, newBook(campaign("c", 1000)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Withheld, RetryAfter: time.Second}))
		src := f.offered(t, delivery.FromIngress, "c", 200)
		time.Sleep(8 * time.Second)
		exactly(t, src.count(delivery.OutcomeRequeued), 200, "in a lane: %+v", src.counts())
	})
}

// TestWhatIsKeptFromBeingSentCostsNoSlot: the slot of a job that the ledger holds back is used by the next job, and by one alone. The job is settled.
func TestWhatIsKeptFromBeingSentCostsNoSlot(t *testing.T) {
	for class, outcome := range map[delivery.ResultClass]delivery.Outcome{
		delivery.Duplicate: delivery.OutcomeDuplicate, delivery.Cancelled: delivery.OutcomeCancelled,
	} {
		t.Run(class.String(), func(t *testing.T) {
			one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
				f.receiver.setLatency(2 * time.Millisecond) // of the decision
				f.receiver.setAnswer(answering(delivery.Result{Class: class}, func(j *delivery.Job) bool { return j.Offset%3 > 0 }))
				src := newPartition("in/0")
				f.offer(t, jobs(src, delivery.FromIngress, "c", 10_000, 120))
				before := 0
				for step := range int64(100) { // a little more than three times as many as there are slots, so that all have room in memory
					if step == 20 {
						before = src.count(delivery.OutcomeDelivered)
					}
					f.offer(t, jobs(src, delivery.FromIngress, "c", step*16, 16))
					time.Sleep(50 * time.Millisecond)
				}
				within(t, src.count(delivery.OutcomeDelivered)-before, 390, 402, "sent in 4 s of 400")
				atLeast(t, src.count(outcome), 2*390, "settled as kept back")
			})
		})
	}
}

// A job that is known to be delivered or cancelled is settled at once, however slow its campaign, and takes no slot.
func TestKnownJobsTakeNoSlot(t *testing.T) {
	one(t, newBook(campaign("c", 1)), nil, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "c", 0, 1000)
		for i, j := range list[1:] {
			j.Duplicate, j.Cancelled = i%3 > 0, i%3 == 0
		}
		f.offer(t, list)
		time.Sleep(2 * time.Second)
		exactly(t, src.count(delivery.OutcomeDuplicate), 666, "settled as duplicates")
		exactly(t, src.count(delivery.OutcomeCancelled), 333, "settled as cancelled")
		exactly(t, f.count("c"), 1, "sent")
	})
}

// deadlines notes until when each job may be sent.
type deadlines struct {
	Sinks
	left chan time.Duration
}

func (d deadlines) Deliver(ctx context.Context, id string, j *delivery.Job) delivery.Result {
	d.left <- time.Until(j.SendBy.Time())
	return d.Sinks.Deliver(ctx, id, j)
}

// A sink call that is held up before anything is sent can tell when the job's slot has passed.
func TestJobsSayUntilWhenTheyMayBeSent(t *testing.T) {
	left := make(chan time.Duration, 100)
	one(t, newBook(campaign("c", 100), campaign("slow", 1)), func(o *Options) { o.Sinks = deadlines{o.Sinks, left} },
		func(t *testing.T, f *fleet) {
			src := f.offered(t, delivery.FromIngress, "c", 20)
			time.Sleep(time.Second)
			f.offer(t, jobs(src, delivery.FromIngress, "slow", 20, 1))
			time.Sleep(3 * time.Second)
			must(t, len(left), 21, "jobs were sent")
			for i := range 21 {
				most := 15 * time.Millisecond // three quarters of the tolerance
				if i == 20 {
					most = 75 * time.Millisecond // and of a tenth of the spacing
				}
				if d := <-left; d <= most-2*time.Millisecond || d > most {
					t.Errorf("job %d may be sent for %s more, want about %s", i, d, most)
				}
			}
		})
}
