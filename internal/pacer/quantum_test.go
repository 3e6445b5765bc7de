package pacer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// counting counts the items of takes, and makes a take last as long as a store needs for them.
type counting struct {
	Limiter
	perItem time.Duration

	mu    sync.Mutex
	items int
	busy  time.Time // when the store has done what it was asked so far
}

func (c *counting) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	c.mu.Lock()
	c.items += len(asks)
	if now := time.Now(); c.busy.Before(now) {
		c.busy = now
	}
	c.busy = c.busy.Add(time.Duration(len(asks)) * c.perItem)
	wait := time.Until(c.busy)
	c.mu.Unlock()
	time.Sleep(wait)
	return c.Limiter.Take(ctx, asks)
}

// TestManyCampaignsStayWithinTheBudget: the campaigns would need five times the items that the store can serve, if they
// asked for each slot by itself. Every one gets its rate, none more, evenly spread, and the budget is kept.
func TestManyCampaignsStayWithinTheBudget(t *testing.T) {
	testservices.Simulation(t)
	const campaigns, rate, budget, seconds = 500, 5, 500, 12
	synctest.Test(t, func(t *testing.T) {
		var all []delivery.Campaign
		for i := range campaigns {
			all = append(all, delivery.Campaign{ID: fmt.Sprintf("c%03d", i), Rate: delivery.PerSecond(rate)})
		}
		var store *counting
		f := newFleet(1, uniform(1, 200*time.Microsecond, 300*time.Microsecond), newBook(all...), func(o *Options) {
			store = &counting{Limiter: o.Limiter, perItem: time.Second / (2 * budget)}
			o.Limiter, o.ItemsPerSecond, o.MaxOpenAge = store, budget, time.Minute
		})
		offered := newPartition("jobs")
		for _, c := range all {
			f.offer(t, jobs(offered, delivery.FromIngress, c.ID, 0, (seconds+2)*rate))
		}
		time.Sleep(2 * time.Second)
		store.mu.Lock()
		before := store.items
		store.mu.Unlock()
		time.Sleep((seconds - 2) * time.Second)
		store.mu.Lock()
		atMost(t, store.items-before, budget*(seconds-2)*14/10, "items in %d s, budget %d a second", seconds-2, budget)
		store.mu.Unlock()
		f.stop()
		var list []arrival
		for _, c := range all {
			sent := sorted(f.receiver.history(), c.ID)
			keepsRate(t, sent, rate, 1)
			n := between(sent, 2_000_000, seconds*1_000_000)
			atLeast(t, n, rate*(seconds-2)*98/100, "%s: jobs in %d s", c.ID, seconds-2)
			list = append(list, sent...)
		}
		bins := map[int64]int{}
		for _, a := range list {
			bins[a.at/100_000]++
		}
		for b := int64(20); b < 10*seconds; b++ {
			if n := bins[b]; n < campaigns*rate/10*7/10 || n > campaigns*rate/10*13/10 {
				t.Errorf("%d jobs in the %d-th tenth of a second, %d on average", n, b, campaigns*rate/10)
			}
		}
	})
}
