package contention

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Nothing is said of a quota before the store said something: an answer without a time counts as none, and begins an outage.
func TestAnswersForTheStoreHaveATime(t *testing.T) {
	const epoch, quantum = 1_790_000_000_000_000, 25_000
	first := &delivery.Quota{ID: "first", Revision: 1, Windows: []delivery.Window{{Span: time.Minute, Limit: 1000}}}
	tight := &delivery.Quota{ID: "tight", Revision: 1, Windows: []delivery.Window{{Span: time.Minute, Limit: 100}}}
	var c Quotas
	take := func(now int64, from, to int) (list []*Contender) {
		for i := from; i < to; i++ {
			campaign := &delivery.Campaign{ID: fmt.Sprint(i), Rate: delivery.PerSecond(1000), Quotas: []*delivery.Quota{first, tight}, PriorityWeight: 1}
			own := &delivery.Ask{Campaign: campaign, Want: 10, Horizon: 200_000, Quantum: quantum}
			list = append(list, &Contender{Own: own, Out: &delivery.Granted{}})
		}
		c.Run(list, now, delivery.Provenance{}, func(wave []*Contender) {
			for _, x := range wave { // some is there, and kept for others
				*x.Out = delivery.Granted{
					GrantedAt: now, NextAt: now + quantum, Bound: delivery.BindQuota, BoundQuota: "tight",
					Windows: []delivery.WindowState{{Quota: "first", Remaining: 1000, ResetAt: now}, {Quota: "tight", Remaining: 3, ResetAt: now}},
				}
			}
		})
		return list
	}
	take(epoch, 0, 1)
	c.quotas["tight"].begun = 1_000_000_000 // the others were served more
	for i, x := range take(epoch+quantum, 1, 40) {
		if x.Out.GrantedAt == 0 {
			t.Errorf("ask %d: %+v", i, x.Out)
		}
	}
}
