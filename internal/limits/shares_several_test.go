package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/luaredis"
)

// contest is campaigns that always have jobs, under several quotas, asked for by one daemon or several.
type contest struct {
	list    []*waiter
	more    []*waiter // the campaigns of the list on other daemons
	wants   []float64 // units that each may send by its rate
	longest int64     // of all spans
	quotas  []*delivery.Quota
	// ownRates: not all campaigns have the same rate.
	ownRates bool
}

// drawContest draws quotas and up to most campaigns. Each is under all quotas or, if they differ, under some of them. Campaigns have rates of
// their own if they differ, or if there is one quota.
func drawContest(rt *rapid.T, most int, differ bool) *contest {
	one := !differ && rapid.Bool().Draw(rt, "one quota")
	c := &contest{ownRates: one || differ}
	quotas := 3
	if one {
		quotas = 1
	}
	for i := range rapid.IntRange(1, quotas).Draw(rt, "quotas") {
		q := &delivery.Quota{ID: fmt.Sprintf("q%d", i), Revision: 1}
		q.Spend = rapid.SampledFrom([]string{delivery.SpendGreedy, delivery.SpendGreedy, delivery.SpendEven}).Draw(rt, "spend")
		for _, seconds := range rapid.SliceOfNDistinct(rapid.SampledFrom([]int64{2, 5, 12, 30}), 1, 2, rapid.ID[int64]).Draw(rt, "spans") {
			c.longest = max(c.longest, seconds)
			q.Windows = append(q.Windows, delivery.Window{
				Span: time.Duration(seconds) * time.Second, Limit: rapid.Int64Range(5, 60).Draw(rt, "limit"),
				Algorithm: rapid.SampledFrom([]string{delivery.AlgorithmSliding, delivery.AlgorithmLog, delivery.AlgorithmFixed}).Draw(rt, "algorithm"),
			})
		}
		c.quotas = append(c.quotas, q)
	}
	rates := rapid.SampledFrom([]int64{1, 2, 5, 20, 100})
	same := rates.Draw(rt, "rate")
	for i := range rapid.IntRange(2, most).Draw(rt, "campaigns") {
		rate, quotas := same, c.quotas
		if c.ownRates {
			rate = rates.Draw(rt, "own rate")
		}
		if differ {
			quotas = rapid.Custom(func(rt *rapid.T) []*delivery.Quota {
				var list []*delivery.Quota
				for _, q := range c.quotas {
					if rapid.Bool().Draw(rt, q.ID) {
						list = append(list, q)
					}
				}
				return list
			}).Filter(func(list []*delivery.Quota) bool { return len(list) > 0 }).Draw(rt, "own quotas")
		}
		campaign := campaign(rate, quotas...)
		campaign.ID = fmt.Sprintf("c%d", i)
		campaign.PriorityWeight = rapid.SampledFrom([]int64{1, 1, 1, 2, 4}).Draw(rt, "priority")
		c.list, c.wants = append(c.list, &waiter{node: "a", ask: ask(campaign, 60)}), append(c.wants, float64(rate))
	}
	return c
}

// spread puts each campaign on one to three daemons.
func (c *contest) spread(rt *rapid.T) {
	for _, w := range c.list {
		nodes := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID[string]).Draw(rt, "daemons")
		w.node = nodes[0]
		for _, node := range nodes[1:] {
			c.more = append(c.more, &waiter{node: node, ask: w.ask})
		}
	}
}

// run lets all ask as they are told for twenty of the longest spans. It ends with what each may send by its rate, and what it got on all
// daemons.
func (c *contest) run(s store) {
	for _, w := range c.list {
		settle(s, epoch, w.ask.Campaign)
	}
	wait(s, epoch+second, epoch+second+20*c.longest*second, slices.Concat(c.list, c.more)...)
	for _, more := range c.more {
		for _, w := range c.list {
			if w.ask.Campaign == more.ask.Campaign {
				w.got, w.asks = w.got+more.got, w.asks+more.asks
			}
		}
	}
	for i := range c.wants {
		c.wants[i] *= float64(20 * c.longest)
	}
}

// least is how many units one of the campaigns may expect of its quotas, by its priority, though all others use theirs.
func (c *contest) least(i int) float64 {
	own, seconds := c.list[i].ask.Campaign, float64(20*c.longest)
	least := c.wants[i]
	for _, q := range own.Quotas {
		all := int64(0)
		for _, w := range c.list {
			if slices.Contains(w.ask.Campaign.Quotas, q) {
				all += w.ask.Campaign.PriorityWeight
			}
		}
		for _, w := range q.Windows {
			span := w.Span.Seconds() + float64(slack(w.Span.Microseconds()))/1e6
			least = min(least, float64(w.Limit)*seconds/span*float64(own.PriorityWeight)/float64(all))
		}
	}
	return least
}

// fair is how what all got would be divided by priority, if none got more than its rate.
func (c *contest) fair() []float64 {
	fair, weights, left := make([]float64, len(c.list)), 0.0, 0.0
	for _, w := range c.list {
		weights, left = weights+float64(w.ask.Campaign.PriorityWeight), left+float64(w.got)
	}
	for again := true; again; {
		again = false
		for i, w := range c.list {
			if weight := float64(w.ask.Campaign.PriorityWeight); fair[i] == 0 && left*weight/weights > c.wants[i] {
				fair[i], left, weights, again = c.wants[i], left-c.wants[i], weights-weight, true
			}
		}
	}
	for i, w := range c.list {
		if fair[i] == 0 {
			fair[i] = left * float64(w.ask.Campaign.PriorityWeight) / weights
		}
	}
	return fair
}

func (c *contest) String() (s string) {
	for _, q := range c.quotas {
		s += fmt.Sprintf("%s %s %v; ", q.ID, q.Spend, q.Windows)
	}
	for i, w := range c.list {
		s += fmt.Sprintf("%s, priority %d, wants %.0f, under", w.ask.Campaign.ID, w.ask.Campaign.PriorityWeight, c.wants[i])
		for _, q := range w.ask.Campaign.Quotas {
			s += " " + q.ID
		}
		s += fmt.Sprintf(": %d with %d asks; ", w.got, w.asks)
	}
	return s
}

// tightest is how many units all may send together, where all are under all quotas.
func (c *contest) tightest() float64 {
	tightest, seconds := 0.0, float64(20*c.longest)
	for _, want := range c.wants {
		tightest += want
	}
	for _, q := range c.quotas {
		for _, w := range q.Windows {
			span := w.Span.Seconds() + float64(slack(w.Span.Microseconds()))/1e6
			tightest = min(tightest, float64(w.Limit)*seconds/span)
		}
	}
	return tightest
}

// burst is what the smallest window may let through at the start, in units.
func (c *contest) burst() float64 {
	burst := int64(60)
	for _, q := range c.quotas {
		for _, w := range q.Windows {
			burst = min(burst, w.Limit)
		}
	}
	return float64(burst)
}

const fewCampaigns, manyCampaigns = 4, 10

// Campaigns under the same quotas share them by their priority, whichever of the quotas, and of their windows, ends a grant, and however
// each is spent. Windows of a few units, where each unit is a large part of a share, are the worst. No campaign has less than three
// fifths there (a half with rates of their own), but for the burst of one window at the start. Together they use seven tenths of what
// there is at least, and nearly all of it in windows of more units.
func TestCampaignsUnderTheSameQuotasShareByPriority(t *testing.T) {
	testservices.Simulation(t)
	for name, most := range map[string]int{"few": fewCampaigns, "many": manyCampaigns} {
		t.Run(name, func(t *testing.T) {
			testservices.Few(t, 60, func(rt *rapid.T) {
				c := drawContest(rt, most, false)
				c.run(limitstest.NewShared())
				all, burst, least := 0.0, c.burst(), 0.6
				if c.ownRates {
					least = 0.5
				}
				for i, fair := range c.fair() {
					all += float64(c.list[i].got)
					if got := float64(c.list[i].got); got < least*fair-burst {
						rt.Errorf("%s got %.0f of %.0f: %s", c.list[i].ask.Campaign.ID, got, fair, c)
					}
				}
				if tightest := c.tightest(); all < 0.7*tightest-burst {
					rt.Errorf("%.0f units of %.0f: %s", all, tightest, c)
				}
			})
		})
	}
}

// With even spending, no stretch of k parts of the span has more than k + 1 units. The horizon of early grants, and the lateness of units
// and slots, come on top.
func TestEvenSpendingIsEven(t *testing.T) {
	testservices.Simulation(t)
	testservices.Few(t, 60, func(rt *rapid.T) {
		c := drawContest(rt, manyCampaigns, false)
		for _, q := range c.quotas {
			q.Spend = delivery.SpendEven
		}
		c.run(limitstest.NewShared())
		var slots []int64
		for _, w := range c.list {
			slots = append(slots, w.slots...)
		}
		slices.Sort(slots)
		for _, q := range c.quotas {
			for _, w := range q.Windows {
				if w.Algorithm == delivery.AlgorithmFixed { // whose part is one of what is left
					continue
				}
				part, next := w.Span.Microseconds()/w.Limit, int64(0)
				for i, at := range slots {
					if at < next-part-2*horizon-late {
						rt.Fatalf("unit %d is sent %v before its part of %v begins: %s", i, time.Duration(next-at)*time.Microsecond, w, c)
					}
					next = max(next, at) + part
				}
			}
		}
	})
}

// Campaigns that need only one quota do not starve a campaign under several shared quotas, on one daemon or several. At most one in
// twenty-five has less than half of its part of the scarcest, in windows of a few units.
func TestFewCampaignsStarveBetweenQuotas(t *testing.T) {
	testservices.Simulation(t)
	for name, spread := range map[string]func(*contest, *rapid.T){"one daemon": func(*contest, *rapid.T) {}, "several": (*contest).spread} {
		t.Run(name, func(t *testing.T) {
			all, starved := 0, 0
			var last *contest
			testservices.Few(t, 100, func(rt *rapid.T) {
				c := drawContest(rt, fewCampaigns, true)
				spread(c, rt)
				c.run(limitstest.NewShared())
				for i := range c.list {
					if all++; float64(c.list[i].got+2) < c.least(i)/2 {
						starved, last = starved+1, c
					}
				}
			})
			if starved*25 > all {
				t.Errorf("%d of %d campaigns got less than half of what is theirs, in the last case: %s", starved, all, last)
			}
		})
	}
}

// Daemons do not keep units of several quotas from each other, so that nobody could be sent for: they use seven tenths of what there is at
// least.
func TestSeveralDaemonsUseTheirQuotas(t *testing.T) {
	testservices.Simulation(t)
	testservices.Few(t, 60, func(rt *rapid.T) {
		c := drawContest(rt, manyCampaigns, false)
		c.spread(rt)
		c.run(limitstest.NewShared())
		all, burst := 0.0, c.burst()
		for _, w := range c.list {
			all += float64(w.got)
		}
		if tightest := c.tightest(); all < 0.7*tightest-burst {
			rt.Errorf("%.0f units of %.0f: %s", all, tightest, c)
		}
	})
}

// TestSeveralQuotasOnRealStores: the scripts do the same as the model, where each quota ends some of the grants.
func TestSeveralQuotasOnRealStores(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		x := example{quotas: []string{"11/5s log", "22/12s fixed"}, campaigns: slices.Repeat([]string{"2/s x1 q0 q1"}, 6)}
		x.sharedFairly(t, s, 0.05)
	})
}

// A quota that only one campaign is under does not decide who is served next of the many that share another, wherever it stands
// among the campaign's quotas.
func TestAQuotaOfItsOwnDecidesNothing(t *testing.T) {
	testservices.Simulation(t)
	for name, text := range map[string]string{"own first": "2/s x1 q%d q0", "own last": "2/s x1 q0 q%d"} {
		t.Run(name, func(t *testing.T) {
			x := example{quotas: []string{"11/5s sliding"}}
			for i := range 12 {
				x.quotas, x.campaigns = append(x.quotas, "1000/12s sliding"), append(x.campaigns, fmt.Sprintf(text, i+1))
			}
			x.sharedFairly(t, limitstest.NewShared(), 0.2)
		})
	}
}

// sharedFairly expects that each campaign of the example gets what falls to it, but for a part.
func (x *example) sharedFairly(t *testing.T, s store, but float64) {
	t.Helper()
	c := x.contest(t)
	c.run(s)
	for i, fair := range c.fair() {
		if got := float64(c.list[i].got); got < (1-but)*fair || got > (1+but)*fair {
			t.Errorf("campaign %d got %.0f of %.0f: %s", i, got, fair, c)
		}
	}
}

// TestScriptsOweWhatTheModelOwes: of campaigns of very different priorities, under windows that give each little at a time, over many spans.
func TestScriptsOweWhatTheModelOwes(t *testing.T) {
	testservices.Simulation(t)
	_, client := luaredis.New()
	x := example{quotas: []string{"5/2s log", "20/12s fixed"}, campaigns: []string{"5/s x1 q0 q1", "5/s x1 q0 q1", "5/s x20 q0 q1"}}
	got := map[string][]int64{}
	for name, s := range map[string]store{"model": limitstest.NewShared(), "scripts": newLua(t, client)} {
		c := x.contest(t)
		c.run(s)
		for _, w := range c.list {
			got[name] = append(got[name], w.got)
		}
	}
	if !slices.Equal(got["scripts"], got["model"]) {
		t.Errorf("granted by the scripts %v, by the model %v", got["scripts"], got["model"])
	}
}
