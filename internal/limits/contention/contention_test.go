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

// A look says nothing of a quota that does not cover the campaign that it is for.
func TestALookSaysNothingOfOtherQuotas(t *testing.T) {
	const epoch, quantum = 1_790_000_000_000_000, 25_000
	mine := &delivery.Quota{ID: "mine", Revision: 1, Windows: []delivery.Window{{Span: time.Minute, Limit: 100}}}
	half := &delivery.Quota{ID: "half", Revision: 1, Exempt: 50, Windows: []delivery.Window{{Span: time.Minute, Limit: 100}}}
	var covered, exempt []string
	for i := range 20 {
		if id := fmt.Sprint(i); half.Covers(id) {
			covered = append(covered, id)
		} else {
			exempt = append(exempt, id)
		}
	}
	var c Quotas
	take := func(now int64, ids ...string) {
		var list []*Contender
		for _, id := range ids {
			campaign := &delivery.Campaign{ID: id, Rate: delivery.PerSecond(1000), Quotas: []*delivery.Quota{mine, half}, PriorityWeight: 1}
			own := &delivery.Ask{Campaign: campaign, Want: 10, Horizon: 200_000, Quantum: quantum}
			list = append(list, &Contender{Own: own, Out: &delivery.Granted{}})
		}
		c.Run(list, now, delivery.Provenance{}, func(wave []*Contender) {
			for _, x := range wave {
				state := []delivery.WindowState{{Quota: "mine", Remaining: 3}, {Quota: "half", Remaining: 50}}
				for i := range state {
					if x.Own.Want == 0 && x.Own.Joint[i].Cost > 0 {
						state[i].Look = delivery.Look{Share: 1, MoreAt: now + quantum}
					}
				}
				*x.Out = delivery.Granted{GrantedAt: now, NextAt: now + quantum, Bound: delivery.BindQuota, BoundQuota: x.Own.Campaign.Quotas[0].ID, Windows: state}
				if half.Covers(x.Own.Campaign.ID) {
					x.Out.BoundQuota = "half"
				}
			}
		})
	}
	take(epoch, covered[0])
	take(epoch+quantum, exempt[0], exempt[1])
	take(epoch+2*quantum, exempt[0], exempt[1])
	if q := c.quotas["half"]; q == nil || q.looked != 0 {
		t.Errorf("%+v", q)
	}
	if q := c.quotas["mine"]; q == nil || q.looked == 0 {
		t.Errorf("%+v", q)
	}
}
