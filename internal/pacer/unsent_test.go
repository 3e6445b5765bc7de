package pacer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

// TestForfeitedSlotsCostNoQuota: a store so slow that many slots have passed when they are granted, and a sink that
// withholds every fifth job, still let the whole of a day's quota be sent, and no more.
func TestForfeitedSlotsCostNoQuota(t *testing.T) {
	harness.Simulation(t)
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
		ctx, cancel := context.WithCancel(t.Context())
		var feeding sync.WaitGroup
		for i := range f.daemons {
			feeding.Go(func() { f.feed(ctx, i, "c", newPartition("lane/0")) })
		}
		time.Sleep(2 * time.Minute)
		cancel()
		feeding.Wait()
		f.stop()
		delivered, forfeited := 0.0, 0.0
		for _, d := range f.daemons {
			delivered += float64(d.counts.know("c").Jobs(delivery.OutcomeDelivered))
			forfeited += testutil.ToFloat64(d.metrics.forfeited)
		}
		if delivered != limit {
			t.Errorf("%g delivered of a quota of %d", delivered, limit)
		}
		if forfeited < limit/4 {
			t.Errorf("%g slots forfeited: too few to show anything", forfeited)
		}
	})
}

// TestARareSlotThatPassedComesBack: a slot of a campaign of a job every thirty seconds, under a strict quota, has passed when the store's
// answer comes. The job goes a moment later, not thirty seconds, and the next one thirty seconds after it.
func TestARareSlotThatPassedComesBack(t *testing.T) {
	harness.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 1)
		c.Rate.Per = 30_000_000
		c.Quotas = []*delivery.Quota{{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Hour, Limit: 1000}}}}
		asked := 0
		f := newFleet(1, func() time.Duration {
			if asked++; asked == 4 { // the answer to the second take
				return 300 * time.Millisecond
			}
			return 0
		}, newBook(c), nil)
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 5))
		time.Sleep(time.Minute)
		f.stop()
		if n := testutil.ToFloat64(f.daemons[0].metrics.forfeited); n != 1 {
			t.Errorf("%g slots have passed", n)
		}
		list := f.receiver.history()
		if len(list) != 2 || list[0].at > 2_000_000 || list[1].at-list[0].at < 29_900_000 {
			t.Errorf("sent %+v", list)
		}
	})
}
