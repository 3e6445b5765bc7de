package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Failures that are about the campaign stop only that campaign, those about the sink or its destination all campaigns.
func TestScopesOfFailures(t *testing.T) {
	for _, class := range []delivery.ResultClass{delivery.Unreachable, delivery.Misconfigured} {
		for scope, stops := range map[delivery.Scope]bool{
			delivery.ScopeSink: true, delivery.ScopeDestination: true, delivery.ScopeCampaign: false,
		} {
			one(t, newBook(campaign("c", 100), campaign("other", 100)), nil, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(answering(delivery.Result{Class: class, Scope: scope}, func(j *delivery.Job) bool {
					return j.Campaign == "c"
				}))
				f.offer(t, jobs(newPartition("lane/c"), delivery.FromLane, "c", 0, 100))
				time.Sleep(500 * time.Millisecond)
				f.offer(t, jobs(newPartition("lane/other"), delivery.FromLane, "other", 0, 100))
				time.Sleep(300 * time.Millisecond)
				if n := f.count("other"); (n == 0) != stops {
					t.Errorf("%s, scope %d: %d jobs of another campaign were sent", class, scope, n)
				}
				time.Sleep(4 * time.Second)
				exactly(t, f.count("other"), 100, "%s, scope %d: jobs of another campaign were sent in the end", class, scope)
			})
		}
	}
}

// TestAContradictedFailureClosesNothing: calls that hang fail after their sink has taken another job that was sent later. Other jobs go on.
func TestAContradictedFailureClosesNothing(t *testing.T) {
	one(t, newBook(campaign("hangs", 20), campaign("fine", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.hangs = func(j *delivery.Job) bool { return j.Campaign == "hangs" }
		f.receiver.setAnswer(answering(delivery.Result{Class: delivery.Unreachable, Scope: delivery.ScopeSink}, func(j *delivery.Job) bool {
			return j.Campaign == "hangs"
		}))
		fine := newPartition("lane/fine")
		f.offer(t, jobs(newPartition("lane/hangs"), delivery.FromLane, "hangs", 0, 10)) // until 0.45 s, and they fail until 1.45 s
		time.Sleep(600 * time.Millisecond)
		f.offer(t, jobs(fine, delivery.FromLane, "fine", 0, 1))
		time.Sleep(850 * time.Millisecond)
		f.offer(t, jobs(fine, delivery.FromLane, "fine", 1, 20))
		time.Sleep(400 * time.Millisecond)
		exactly(t, f.count("fine"), 21, "jobs were sent")
	})
}
