package model_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/testservices"
)

// However often the rate changes, and though daemons hear of it at different times, no rolling second holds more
// than the largest rate in force around it, and one.
func TestChangesOfRateNeverOverGrant(t *testing.T) {
	testservices.Simulation(t)
	rapid.Check(t, func(rt *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		rates := rapid.SliceOfN(rapid.SampledFrom([]int64{1, 2, 10, 60, 333, 1_000, 5_000}), 1, 12).Draw(rt, "rates")
		daemons := rapid.IntRange(1, 5).Draw(rt, "daemons")
		s := model.NewStore()
		var askers []*asker
		for i := range daemons {
			askers = append(askers, greedy(fmt.Sprint(i), nil, epoch+rnd.Int64N(quantum)))
		}
		now := epoch
		var changes []int64
		for i, r := range rates {
			c := &delivery.Campaign{ID: "c", Revision: int64(i + 1), Rate: delivery.PerSecond(r)}
			// One daemon hears of it first; the others keep the old revision for a while.
			order := rnd.Perm(daemons)
			changes = append(changes, now)
			for _, k := range order {
				askers[k].campaign = c
				if i == 0 {
					for _, a := range askers {
						a.campaign = c
					}
				}
				askers[k].at = max(now, min(askers[k].at, now+quantum)) // a change is a reason to ask
				now += rnd.Int64N(200_000)
				simulate(s, askers, now, rnd)
			}
			now += rnd.Int64N(2_000_000)
			simulate(s, askers, now, rnd)
		}
		from, all := 0, slotsOf(askers)
		for i, e := range all {
			for all[from] <= e-1_000_000 {
				from++
			}
			largest := int64(0)
			for j, at := range changes {
				ended := int64(1) << 62
				if j+1 < len(changes) {
					ended = changes[j+1] + 400_000 + horizon // heard of everywhere, and its slots used up
				}
				if at <= e && ended >= e-1_000_000 {
					largest = max(largest, rates[j])
				}
			}
			if n := int64(i - from + 1); n > largest+1 {
				rt.Fatalf("%d in the second before %d, the largest rate was %d", n, e-epoch, largest)
			}
		}
	})
}
