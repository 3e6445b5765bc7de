package pacer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestForfeitedSlotsCostNoQuota: a store so slow that many slots have passed when they are granted, and a sink that
// withholds every fifth job, still let the whole of a day's quota be sent, and no more.
func TestForfeitedSlotsCostNoQuota(t *testing.T) {
	testservices.Simulation(t)
	const limit = 300
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 100)
		c.Quotas = []*delivery.Quota{{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: 24 * time.Hour, Limit: limit}}}}
		f := newFleet(2, uniform(5, 40*time.Millisecond, 80*time.Millisecond), newBook(c), nil)
		calls := 0
		f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
			if calls++; calls%5 == 0 {
				return delivery.Result{Class: delivery.Withheld, RetryAfter: 10 * time.Millisecond}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		stop := f.feedAll("c")
		time.Sleep(2 * time.Minute)
		stop()
		f.stop()
		delivered, forfeited := 0.0, 0.0
		for _, d := range f.daemons {
			delivered += float64(d.counts.know("c").Jobs(delivery.OutcomeDelivered))
			forfeited += testutil.ToFloat64(d.metrics.forfeited)
		}
		exactly(t, delivered, limit, "delivered")
		atLeast(t, forfeited, limit/4, "slots forfeited: too few to show anything")
	})
}
