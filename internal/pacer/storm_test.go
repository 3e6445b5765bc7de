package pacer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestChangesOfRateCostLittle: a rate that changes every tenth of a second, to anything between 50 and 5,000/s, is sent for
// nine tenths at least, by one daemon or by three: slots that are handed back are granted again.
func TestChangesOfRateCostLittle(t *testing.T) {
	testservices.Simulation(t)
	const every, warm, length = 100 * time.Millisecond, time.Second, 10 * time.Second
	for _, daemons := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d daemons", daemons), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 1))
				b := newBook(campaign("c", 1000))
				f := newFleet(daemons, uniform(1, 400*time.Microsecond, 200*time.Microsecond), b, nil)
				stop := f.feedAll("c")
				changes, due := []change{{0, 1000}}, 0.0
				until := func(at int64) {
					time.Sleep(time.Duration(at)*time.Microsecond - time.Since(f.receiver.began))
					last := changes[len(changes)-1]
					due += float64(last.rate) * float64(at-max(last.at, warm.Microseconds())) / 1e6
				}
				for at := warm; at < warm+length; at += every {
					next := (at + time.Duration(random.Int64N(int64(every)))).Microseconds()
					until(next)
					changes = append(changes, change{next, int64(50 * math.Pow(100, random.Float64()))})
					b.set(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(changes[len(changes)-1].rate)})
				}
				end := (warm + length).Microseconds()
				until(end)
				stop()
				f.stop()
				all := sorted(f.receiver.history(), "c")
				atLeast(t, float64(between(all, warm.Microseconds(), end)), 0.9*due, "sent of %.0f", due)
				over, _ := overRate(all, changes, 20_000)
				atMost(t, over, 1, "above the rate")
			})
		})
	}
}
