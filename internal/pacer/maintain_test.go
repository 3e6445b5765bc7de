package pacer

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestManyQueuesAreMaintainedBitByBit: with more queues than fit into one turn, each has its turn again and again, and those that stay
// empty are forgotten, all but the one in use.
func TestManyQueuesAreMaintainedBitByBit(t *testing.T) {
	testservices.Simulation(t)
	const queues = 2*maintainBit + 7
	b := newBook(campaign("used", 1))
	for i := range queues {
		c := campaign(fmt.Sprint("c", i), 1000)
		c.Revision, c.Status = 1, delivery.StatusActive
		b.snapshot.Campaigns[c.ID] = &c
	}
	one(t, b, nil, func(t *testing.T, f *fleet) {
		ingress, p := newPartition("jobs/0"), f.daemons[0]
		var list []*delivery.Job
		for i := range queues {
			list = append(list, jobs(ingress, delivery.FromIngress, fmt.Sprint("c", i), int64(i), 1)...)
		}
		f.offer(t, list)
		time.Sleep(5 * time.Second)
		if sent := len(f.receiver.history()); sent != queues || len(p.queues.list) != queues {
			t.Fatalf("%d of %d jobs sent, %d queues", sent, queues, len(p.queues.list))
		}
		for i := range 10 {
			f.offer(t, jobs(ingress, delivery.FromIngress, "used", int64(queues+i), 1))
			time.Sleep(idleQueue / 5)
		}
		if len(p.queues.list) != 1 || len(p.queues.byID) != 1 || p.queues.list[0] != p.queues.byID["used"] || p.queues.list[0].place != 0 {
			t.Errorf("%d and %d queues remembered, want the one in use", len(p.queues.list), len(p.queues.byID))
		}
	})
}
