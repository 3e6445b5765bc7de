package local

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestAHeavyJobOfLongAgoDoesNotStopTheShare: what counts is the heaviest job of the last minutes.
func TestAHeavyJobOfLongAgoDoesNotStopTheShare(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	q := localShare(windows(100_000, 10*time.Second))
	c := campaign(100, q)
	o := newOutage(t, 1, 20*time.Second)
	for range 3 {
		o.add(t, 0, c)
	}
	heavy := ask(c, 1)
	heavy.Weights, heavy.Want = []int64{90}, 90
	for _, d := range o.daemons {
		reply := o.store.Take(epoch-1, d.name, []delivery.Ask{heavy})
		d.f.Observe([]delivery.Ask{heavy}, &reply)
	}
	o.down, o.up = epoch+200*second, epoch+220*second
	o.run(o.up + 10*second)
	o.check(t.Errorf, []*delivery.Campaign{c}, []*delivery.Quota{q})
	slots := o.slots(0, func(*delivery.Campaign) bool { return true })
	if n := between(slots, o.down+3*second, o.up); n < 17*80 {
		t.Errorf("%d sent without the store in 17 s, of 100 a second", n)
	}
}
