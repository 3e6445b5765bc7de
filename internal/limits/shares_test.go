package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/testservices"
)

// Campaigns that compete share a quota by their priority weights, counted in units, under all job weights, algorithms and spendings. They
// use the whole quota.
func TestSharesFollowPriorityUnderEveryKindOfQuota(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for _, spend := range []string{delivery.SpendGreedy, delivery.SpendEven} {
		for _, algorithm := range []string{delivery.AlgorithmSliding, delivery.AlgorithmLog, delivery.AlgorithmFixed} {
			for _, weights := range [][2]int64{{1, 1}, {5, 1}, {1, 5}, {5, 5}, {15, 2}} {
				t.Run(fmt.Sprint(spend, " ", algorithm, " ", weights), func(t *testing.T) {
					// Thousands of takes each: the model speaks for the scripts, which do the same.
					if !*everywhere && (weights[0] < 15 || spend == delivery.SpendEven) {
						sharesFollowPriority(t, limitstest.NewShared(), spend, algorithm, weights)
						return
					}
					simulate(t, func(t *testing.T, s store) { sharesFollowPriority(t, s, spend, algorithm, weights) })
				})
			}
		}
	}
}

func sharesFollowPriority(t *testing.T, s store, spend, algorithm string, weights [2]int64) {
	const span, limit, spans = 4 * second, 60, 60
	q := &delivery.Quota{ID: "q", Revision: 1, Spend: spend, Windows: []delivery.Window{{Span: 4 * time.Second, Limit: limit, Algorithm: algorithm}}}
	modest, eager := waiting("modest", q, int(60/weights[0]), weights[0]), waiting("eager", q, int(60/weights[1]), weights[1])
	eager.ask.Campaign.PriorityWeight = 3
	settle(s, epoch, modest.ask.Campaign)
	now := settle(s, epoch, eager.ask.Campaign)
	wait(s, now, now+spans*span, modest, eager)
	all := modest.got + eager.got
	if least := int64(spans * limit * 9 / 10); all < least {
		t.Errorf("%d units, %d are allowed", all, spans*limit)
	}
	if part := float64(eager.got) / float64(all); part < 0.70 || part > 0.80 {
		t.Errorf("%d and %d units: %.0f %% instead of 75", modest.got, eager.got, 100*part)
	}
}

// A campaign that has no more jobs on one of its daemons gets its share on the others: at once, or 15 s after the daemon is gone.
func TestACampaignThatLeavesADaemonKeepsItsShare(t *testing.T) {
	testservices.Simulation(t)
	for name, from := range map[string]int64{"no more jobs": 21, "gone": 40} {
		t.Run(name, func(t *testing.T) {
			s, q := limitstest.NewShared(), &delivery.Quota{ID: "q", Revision: 1, Windows: windows(40, time.Second, 150, 5*time.Second, 400, 20*time.Second)}
			var all []*waiter
			for _, id := range []string{"a", "b", "c"} {
				for _, node := range []string{"one", "two", "three"} {
					c := campaign(200, q)
					c.ID = id
					all = append(all, &waiter{node: node, ask: ask(c, 1000)})
				}
			}
			wait(s, epoch, epoch+20*second, all...)
			if leaves := all[len(all)-1]; name == "no more jobs" {
				leaves.ask.Want = 1
				for now, got := epoch+20*second, leaves.got; leaves.got == got; now += quantum {
					wait(s, now, now+quantum, leaves)
				}
			}
			all = all[:len(all)-1]
			wait(s, epoch+20*second, epoch+from*second, all...)
			got, units := map[string]int64{}, int64(0)
			for _, w := range all {
				got[w.ask.Campaign.ID] -= w.got
			}
			wait(s, epoch+from*second, epoch+(from+20)*second, all...)
			for _, w := range all {
				got[w.ask.Campaign.ID] += w.got
			}
			for _, n := range got {
				units += n
			}
			if part := float64(3*got["c"]) / float64(units); part < 0.9 || part > 1.1 {
				t.Errorf("it got %.2f of a third: %v", part, got)
			}
		})
	}
}

// Campaigns of all rates, each on several daemons, share a quota by their priority weights. They use all that every window allows, and no
// daemon starves.
func TestCampaignsOfSeveralDaemonsShareAQuota(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	two, three := windows(60, 2*time.Second), windows(40, time.Second, 150, 5*time.Second, 400, 20*time.Second)
	for name, tc := range map[string]struct {
		windows []delivery.Window
		rates   []int64
		daemons []string // of each campaign, a letter for each daemon
		weights []int64
		seconds int64
		fair    []float64 // shares, if not in proportion to the weights
	}{
		"two over two daemons":   {two, []int64{100, 100}, []string{"ab", "ab"}, []int64{1, 1}, 60, nil},
		"two over three daemons": {two, []int64{100, 100}, []string{"abc", "abc"}, []int64{1, 1}, 60, nil},
		"three windows":          {three, []int64{200, 200, 200}, []string{"ab", "ab", "ab"}, []int64{1, 1, 1}, 120, nil},
		"some of the daemons":    {three, []int64{200, 200, 200}, []string{"abc", "ac", "bc"}, []int64{1, 1, 1}, 120, nil},
		"one daemon of three":    {three, []int64{200, 200, 200}, []string{"abc", "abc", "a"}, []int64{1, 1, 1}, 120, nil},
		"weighted":               {two, []int64{100, 100}, []string{"ab", "ab"}, []int64{3, 1}, 60, nil},
		"unequal rates":          {windows(300, 10*time.Second), []int64{60, 400}, []string{"abc", "abc"}, []int64{1, 1}, 120, nil},
		"below its share":        {two, []int64{10, 100}, []string{"ab", "ab"}, []int64{1, 1}, 60, []float64{10. / 29.2, 19.2 / 29.2}},
		"slow ones": {
			two, []int64{2, 2, 2, 2, 2, 100}, slices.Repeat([]string{"abc"}, 6), []int64{1, 1, 1, 1, 1, 1}, 200, []float64{.069, .069, .069, .069, .069, .655},
		},
		"fast": {windows(5_000, time.Second), []int64{10_000, 4_000}, []string{"abc", "abc"}, []int64{1, 1}, 10, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, q := limitstest.NewShared(), &delivery.Quota{ID: "q", Revision: 1, Windows: tc.windows}
			var all []*waiter
			weights := int64(0)
			for i, rate := range tc.rates {
				c := campaign(rate, q)
				c.ID, c.PriorityWeight = fmt.Sprint("c", i), tc.weights[i]
				weights += tc.weights[i]
				for _, node := range tc.daemons[i] {
					w := &waiter{node: string(node), ask: ask(c, 10_000), at: epoch + int64(len(all)%3)*quantum}
					w.ask.Horizon = min(horizon, max(quantum, tc.windows[0].Span.Microseconds()/50))
					all = append(all, w)
				}
			}
			end := epoch + tc.seconds*second
			list, units, use := wait(s, epoch, end, all...), int64(0), 0.0
			for _, one := range list {
				units += one.units
			}
			for _, w := range tc.windows {
				span := float64(w.Span.Microseconds())
				use = max(use, float64(units)*(span*61/60+float64(all[0].ask.Horizon+late))/float64(w.Limit*(end-epoch)))
			}
			if use < 0.95 {
				t.Errorf("used %.3f of what the tightest window allows", use)
			}
			for i := range tc.rates {
				var ofOne []*waiter
				got := int64(0)
				for _, w := range all {
					if w.ask.Campaign.ID == fmt.Sprint("c", i) {
						ofOne, got = append(ofOne, w), got+w.got
					}
				}
				fair := float64(units*tc.weights[i]) / float64(weights)
				if tc.fair != nil {
					fair = float64(units) * tc.fair[i]
				}
				if d := float64(got)/fair - 1; d > 0.08 || d < -0.08 {
					t.Errorf("c%d got %d, fair is %.0f (%+.1f %%)", i, got, fair, 100*d)
				}
				for _, w := range ofOne {
					if w.got < got/int64(2*len(ofOne)) && tc.daemons[i] == tc.daemons[0] {
						t.Errorf("c%d got %d of %d on %s: a daemon is starved", i, w.got, got, w.node)
					}
				}
			}
		})
	}
}
