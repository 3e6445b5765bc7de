package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A normal refusal settles its job as rejected: no dead letter, no retry, an attempt that counts, and a sign that the sink
// works. However many come in a row, they hold nothing.
func TestRejectedJobs(t *testing.T) {
	one(t, newBook(campaign("c", 200)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(nth(2, delivery.Result{Class: delivery.Rejected}))
		lane := newPartition("lane/0")
		list := f.counted(0, jobs(lane, delivery.FromLane, "c", 0, 300))
		f.offer(t, list)
		time.Sleep(2 * time.Second)
		f.receiver.setAnswer(nth(1, delivery.Result{Class: delivery.Rejected}))
		f.offer(t, f.counted(0, jobs(lane, delivery.FromLane, "c", 300, 200)))
		time.Sleep(2 * time.Second)
		exactly(t, lane.count(delivery.OutcomeRejected), 350, "rejected")
		exactly(t, lane.count(delivery.OutcomeDelivered), 150, "delivered")
		for _, j := range list {
			if j.Attempt != 1 {
				t.Fatalf("%s: attempt %d", j.ID, j.Attempt)
			}
		}
		if puts := f.outboxes[0].all(); len(puts) != 0 {
			t.Errorf("written elsewhere: %+v", puts)
		}
		settled := f.daemons[0].Tallies()[0].Settled
		if settled != (delivery.Settled{delivery.OutcomeDelivered: 150, delivery.OutcomeRejected: 350}) || settled.Total() != 500 {
			t.Errorf("counted %+v", settled)
		}
	})
}

// A sink may be set to keep what is rejected: a dead letter with that reason, and as little a sign of trouble. The destination's answer
// goes with the job.
func TestRejectedJobsThatAreKept(t *testing.T) {
	one(t, newBook(campaign("c", 200)), nil, func(t *testing.T, f *fleet) {
		said := &delivery.Provider{Code: "UNREGISTERED"}
		f.receiver.setAnswer(nth(1, delivery.Result{Class: delivery.Rejected, Keep: true, Provider: said}))
		list := jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 200)
		f.offer(t, list)
		time.Sleep(2 * time.Second)
		exactly(t, f.dead(delivery.ReasonRejected), 200, "kept")
		for _, j := range list {
			if j.Attempt != 1 || j.Call.Provider != said {
				t.Fatalf("%s: attempt %d, %+v", j.ID, j.Attempt, j.Call)
			}
		}
		exactly(t, len(f.troubles(t)), 0, "troubles")
	})
}
