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
				f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
					if j.Campaign == "c" {
						return delivery.Result{Class: class, Scope: scope}
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				f.offer(t, jobs(newPartition("lane/c"), delivery.FromLane, "c", 0, 100))
				time.Sleep(500 * time.Millisecond)
				f.offer(t, jobs(newPartition("lane/other"), delivery.FromLane, "other", 0, 100))
				time.Sleep(300 * time.Millisecond)
				if n := f.count("other"); (n == 0) != stops {
					t.Errorf("%s, scope %d: %d jobs of another campaign were sent", class, scope, n)
				}
				time.Sleep(4 * time.Second)
				if n := f.count("other"); n != 100 {
					t.Errorf("%s, scope %d: %d of 100 jobs of another campaign were sent in the end", class, scope, n)
				}
			})
		}
	}
}
