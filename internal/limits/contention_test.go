package limits

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/luaredis"
)

// onDaemons runs a test on the model and on Redis.
func onDaemons(t *testing.T, test func(t *testing.T, s store)) {
	t.Helper()
	testservices.Simulation(t)
	t.Run("model", func(t *testing.T) { test(t, limitstest.NewShared()) })
	t.Run("redis", func(t *testing.T) { test(t, newLua(t, realClient(t))) })
}

// shorter is length for the model.
func shorter(s store, onModel, onRedis int64) int64 {
	if _, ok := s.(*limitstest.Shared); ok {
		return onModel * second
	}
	return onRedis * second
}

func newParty(node, id string, weight int64, q *delivery.Quota) *waiter {
	c := campaign(20, q)
	c.ID, c.PriorityWeight = id, weight
	return &waiter{node: node, ask: ask(c, 1000)}
}

// Of a used-up quota every campaign gets its part by weight, whichever daemons it is on and however few or many others wait there; nothing
// is lost by that, no daemon starves, and the limit holds.
func TestContendersShareByWeightOverTheFleet(t *testing.T) {
	sliding := windows(300, 30*time.Second)
	for name, tc := range map[string]struct {
		windows    []delivery.Window
		campaigns  []int // of each daemon
		everywhere bool  // all daemons have the same campaigns
		onRedis    int64 // how long it lasts there, in seconds
		most       float64
	}{
		"sliding":             {sliding, []int{30, 9, 3}, false, 60, 2},
		"two":                 {windows(150, 10*time.Second, 300, 30*time.Second), []int{30, 9, 3}, false, 60, 2},
		"fixed":               {[]delivery.Window{{Span: 30 * time.Second, Limit: 300, Algorithm: delivery.AlgorithmFixed}}, []int{30, 9, 3}, false, 60, 2},
		"on every daemon":     {sliding, []int{12, 12, 12}, true, 90, 0.5},
		"few on every daemon": {sliding, []int{3, 3, 3}, true, 90, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			onDaemons(t, func(t *testing.T, s store) {
				q := &delivery.Quota{ID: "q", Revision: 1, Windows: tc.windows}
				var all []*waiter
				weights, total := map[string]int64{}, int64(0) // of campaigns
				for d, campaigns := range tc.campaigns {
					for i := range campaigns {
						id := fmt.Sprintf("c%d-%d", d, i)
						if tc.everywhere {
							id = fmt.Sprint("c", i)
						}
						weights[id] = 1 + 2*int64(i%3/2)
						all = append(all, newParty(fmt.Sprint("n", d), id, weights[id], q))
					}
				}
				for _, weight := range weights {
					total += weight
				}
				lasts := shorter(s, 600, tc.onRedis)
				most, mostOfNode := 0.25, 0.02
				if lasts < 600*second { // few units for each
					most, mostOfNode = tc.most, 0.3
				}
				wait(s, epoch, epoch+60*second, all...)
				for _, p := range all {
					p.got = 0
				}
				list := wait(s, epoch+60*second, epoch+60*second+lasts, all...)
				units := within(list, epoch+60*second+lasts, lasts+second)
				got, byNode, fairByNode := map[string]int64{}, map[string]int64{}, map[string]float64{}
				fair := func(id string) float64 { return float64(units) * float64(weights[id]) / float64(total) }
				for _, p := range all {
					id := p.ask.Campaign.ID
					got[id] += p.got
					byNode[p.node] += p.got
					fairByNode[p.node] += fair(id)
				}
				for _, p := range all {
					if id := p.ask.Campaign.ID; tc.everywhere && p.got < got[id]/int64(2*len(tc.campaigns)) && lasts == 600*second {
						t.Errorf("%s got %d on %s, %d everywhere", id, p.got, p.node, got[id])
					}
				}
				for id, n := range got {
					if d := float64(n)/fair(id) - 1; math.Abs(d) > most {
						t.Errorf("%s, weight %d, got %d, fair is %.0f", id, weights[id], n, fair(id))
					}
				}
				for node, got := range byNode {
					if d := float64(got)/fairByNode[node] - 1; math.Abs(d) > mostOfNode && !tc.everywhere {
						t.Errorf("%s got %d, fair is %.0f", node, got, fairByNode[node])
					}
				}
				if least := 300 * lasts / (30 * second) * 93 / 100; units < least {
					t.Errorf("%d units, at least %d are allowed", units, least)
				}
				for i := range list {
					if n := within(list[:i+1], list[i].at, 30*second); n > 300 && name != "fixed" {
						t.Fatalf("%d units in a span", n)
					}
				}
			})
		})
	}
}

// Contenders get what there is as soon as it is there, each no more than its part of it, and what some leave goes to the others.
func TestContendersUseWhatBecomesFree(t *testing.T) {
	onDaemons(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Minute, Limit: 100, Algorithm: delivery.AlgorithmFixed}}}
		var all []*waiter
		for i := range 20 {
			all = append(all, newParty("n", fmt.Sprint("c", i), 1, q))
		}
		wait(s, epoch, epoch+59*second, all...) // begins with a grant, at the earliest a moment after epoch
		for _, p := range all {
			p.got = 0
			if p.ask.Campaign.ID == "c3" {
				p.ask.Want = 1
			}
		}
		wait(s, epoch+59*second, epoch+63*second, all...)
		var units int64
		for _, p := range all {
			units += p.got
			if p.got < 1 || p.got > 10 {
				t.Errorf("%s got %d of 100 for 20", p.ask.Campaign.ID, p.got)
			}
		}
		if units != 100 {
			t.Errorf("%d of 100 units are used", units)
		}
	})
}

// A heavy job among contenders is sent, although the others would use every unit. A job that can never be sent stops no campaign.
func TestAHeavyJobAmongContenders(t *testing.T) {
	onDaemons(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(60, 30*time.Second)}
		heavy, never := newParty("n", "heavy", 1, q), newParty("n", "never", 1, q)
		heavy.ask.Want, heavy.ask.Weights = 60, []int64{20, 20, 20}
		never.ask.Want, never.ask.Weights = 61, []int64{61}
		all := []*waiter{heavy}
		for i := range 9 {
			all = append(all, newParty("n", fmt.Sprint("c", i), 1, q))
		}
		wait(s, epoch, epoch+10*second, all...)
		all = append(all, never)
		lasts := shorter(s, 600, 150)
		wait(s, epoch+10*second, epoch+10*second+lasts, all...)
		for _, p := range all {
			if least := 2 * lasts / second / 10 * 6 / 10; p.got < least && p != never {
				t.Errorf("%s got %d of %d", p.ask.Campaign.ID, p.got, 2*lasts/second)
			}
		}
	})
}

// A campaign that another quota holds back costs the others nothing.
func TestContendersAreNotStoppedByAnotherQuota(t *testing.T) {
	onDaemons(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, 10*time.Second)}
		tight := &delivery.Quota{ID: "tight", Revision: 1, Windows: windows(1, time.Hour)}
		var all []*waiter
		for i := range 10 {
			p := newParty("n", fmt.Sprint("a", i), 1, q)
			p.ask.Campaign.Quotas = append(p.ask.Campaign.Quotas, tight)
			all = append(all, p, newParty("n", fmt.Sprint("c", i), 1, q))
		}
		list := wait(s, epoch, epoch+60*second, all...)
		if units := within(list, epoch+60*second, 50*second); units < 450 {
			t.Errorf("%d units in 50 s, 500 are allowed", units)
		}
	})
}

// The store's cost of an ask does not grow with the number of waiting campaigns: most of many are not asked for.
func TestManyWhoWaitCostLittle(t *testing.T) {
	testservices.Simulation(t)
	in, client := luaredis.New()
	in.Counts = true
	l, q := newLua(t, client), &delivery.Quota{ID: "q", Revision: 1, Windows: smev}
	var all []*waiter
	for i := range 360 {
		all = append(all, contending("d", i, q))
	}
	wait(l, epoch, epoch+20*second, all...)
	in.Reset()
	asks, units := contend(l, all, epoch+20*second, epoch+80*second)
	t.Logf("%d asks, %d units, %d scripts, %d instructions an ask, %d in the longest", asks, units, in.Runs, in.All/asks, in.Most)
	if in.All == 0 || in.All > 1000*asks || in.Most > mostWork || units < 300 {
		t.Errorf("%d instructions for %d asks, %d units", in.All, asks, units)
	}
}
