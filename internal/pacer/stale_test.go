package pacer

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestStaleTokensCostOthersNothing: some of the tokens or subscriptions of a campaign are refused, as after a change of keys. The others get
// theirs in time, and each of these jobs ends with its first answer. Where all of them are refused, few jobs are given up.
func TestStaleTokensCostOthersNothing(t *testing.T) {
	testservices.Simulation(t)
	for destination, percent := range map[string][]int{"": {1, 20, 50}, "https://push.example.com:443": {1, 5, 20, 50, 100}} {
		for _, stale := range percent {
			t.Run(fmt.Sprint(stale, " % ", destination), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n, rate = 3000, 100
					f := newFleet(1, uniform(3, 500*time.Microsecond, 0), newBook(campaign("web", rate)), withShops(&shops{}))
					defer f.stop()
					f.receiver.max = 256
					f.receiver.setLatency(50 * time.Millisecond)
					var taken atomic.Int64
					f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
						if strings.HasPrefix(j.ID, "stale") {
							return delivery.Result{Class: delivery.Permanent, Status: 403}
						}
						taken.Add(1)
						return delivery.Result{Class: delivery.Delivered}
					})
					defer f.timers(t.Context(), 0)()
					list, good := named(jobs(newPartition("web"), delivery.FromLane, "web", 0, n), destination), int64(n)
					for i, j := range list {
						if i*7919%100 < stale {
							j.ID, good = fmt.Sprint("stale-", i), good-1
						}
					}
					begun := time.Now()
					f.push(t, list)
					time.Sleep(time.Until(begun.Add(1.2 * n / rate * time.Second)))
					exactly(t, taken.Load(), good, "good ones in time")
					dead, calls := f.dead(delivery.ReasonRefused), f.count("web")
					if stale < 100 && (dead != n-int(good) || calls != n) || stale == 100 && dead > 2*heldRefusals {
						t.Errorf("%d of %d stale ones are dead letters after %d calls for %d jobs", dead, n-int(good), calls, n)
					}
				})
			})
		}
	}
}
