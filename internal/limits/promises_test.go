package limits

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/testservices"
)

// These tests know what docs/quotas.md promises, and nothing of how it is kept.

// sent is units that were granted at a time.
type sent struct{ at, units int64 }

// within is how many units were granted in the stretch of the given length that ends at now.
func within(list []sent, now, length int64) (units int64) {
	for _, s := range list {
		if s.at > now-length {
			units += s.units
		}
	}
	return units
}

// slack is how much longer than its span a window may count: one of its steps, and what the daemons ask ahead.
func slack(span int64) int64 {
	return model.Step(delivery.Window{Span: time.Duration(span) * time.Microsecond}) + horizon + late
}

// Units that are handed back one by one are all handed back, also while a quota is rolled out.
func TestUnitsHandedBackOneByOneAreThereAgain(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for _, rollout := range []int64{1, 50, 100} {
		eachStore(t, func(t *testing.T, s store) {
			q := &delivery.Quota{ID: "q", Revision: 1, Exempt: 100 - rollout, Windows: windows(1000, time.Minute, 5000, time.Hour)}
			now := settle(s, epoch, campaign(1000, q))
			for i := range 10 {
				c := campaign(1000, q)
				c.ID = fmt.Sprintf("c%d", i)
				settle(s, epoch, c)
				granted := take1(s, now, "a", ask(c, 10))
				g := granted.Grant()
				for g.Units > 0 {
					back := g
					back.Units, back.First = 1, g.First.Advance(g.Units-1, g.Rate)
					s.Refund(now, []delivery.Grant{back})
					g.Units--
				}
			}
			for _, w := range s.Peek(now, []*delivery.Quota{q}) {
				if w.Remaining != q.Windows[w.Window].Limit {
					t.Errorf("rollout %d: %d left of %d", rollout, w.Remaining, q.Windows[w.Window].Limit)
				}
			}
		})
	}
}

// waiter is a campaign on a daemon, which asks as daemons do: at the time it was told, and every 12 s at least.
type waiter struct {
	node  string
	ask   delivery.Ask
	at    int64
	asks  int
	got   int64
	slots []int64
}

// wait lets the campaigns ask until the given time, those of one daemon in one take, and returns all grants.
func wait(s store, now, until int64, list ...*waiter) (all []sent) {
	byNode := map[string][]*waiter{}
	for _, w := range list {
		byNode[w.node] = append(byNode[w.node], w)
	}
	nodes, order := slices.Sorted(maps.Keys(byNode)), rand.New(rand.NewPCG(1, 1))
	for ; now < until; now += quantum {
		order.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] }) // nobody is always the first, or the second
		for _, node := range nodes {
			var due []*waiter
			var asks []delivery.Ask
			for _, w := range byNode[node] {
				if now >= w.at {
					due, asks = append(due, w), append(asks, w.ask)
				}
			}
			if len(due) == 0 {
				continue
			}
			for i, g := range s.Take(now, node, asks).Items {
				w := due[i]
				w.asks++
				w.got += g.Units
				for n := range g.Units {
					w.slots = append(w.slots, g.First.Advance(n, g.Rate).Micros())
				}
				if g.Units > 0 {
					all = append(all, sent{now, g.Units})
				}
				if w.at = now + quantum; g.Units < w.ask.Want && g.NextAt > w.at {
					w.at = min(g.NextAt, now+12*second)
				}
			}
		}
	}
	return all
}

// waiting is a campaign with as many jobs of one weight.
func waiting(id string, q *delivery.Quota, jobs int, weight int64) *waiter {
	c := campaign(100, q)
	c.ID = id
	a := ask(c, int64(jobs)*weight)
	a.Weights = slices.Repeat([]int64{weight}, jobs)
	return &waiter{node: "a", ask: a}
}

// Units that a gone campaign could not use go to the others within 16 s, however far off its turn was. Until then they do not ask all the
// time.
func TestNothingIsKeptForACampaignThatIsGone(t *testing.T) {
	testservices.Simulation(t)
	simulate(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(1000, 24*time.Hour)}
		gone, light := waiting("gone", q, 1, 500), waiting("light", q, 1, 1)
		used := waiting("light", q, 1, 700)
		now := settle(s, epoch, light.ask.Campaign)
		settle(s, epoch, gone.ask.Campaign)
		wait(s, now, now+quantum, used) // a first job uses more than a half
		if used.got != 700 {
			t.Fatalf("%+v", used)
		}
		now += 23 * 3600 * second // which leaves the window an hour later
		wait(s, now, now+quantum, gone)
		if gone.got != 0 {
			t.Fatalf("%+v", gone)
		}
		wait(s, now, now+14*second, light)
		shared := light.got
		if shared < 140 || shared > 160 {
			t.Errorf("%d of 300 units while a half of them was kept", shared)
		}
		wait(s, now+14*second, now+17*second, light)
		if light.got < shared+40 || light.asks > int(light.got)+20 {
			t.Errorf("%d units with %d asks, %d of them while a half was kept", light.got, light.asks, shared)
		}
	})
}

// A heavy job that waits for much room is sent, although others would use every unit of it. All have their share, and no campaign asks
// all the time.
func TestAHeavyJobIsNotStarvedByLightOnes(t *testing.T) {
	testservices.Simulation(t)
	simulate(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(60, time.Minute)}
		heavy, light, other := waiting("heavy", q, 5, 50), waiting("light", q, 60, 1), waiting("other", q, 20, 3)
		now := epoch
		for _, w := range []*waiter{heavy, light, other} {
			now = settle(s, epoch, w.ask.Campaign)
		}
		step := model.Step(q.Windows[0])
		now += step - now%step // what is sent at once comes back at once
		wait(s, now, now+30*second, light, other)
		wait(s, now+30*second, now+600*second, heavy, light, other)
		for _, w := range []*waiter{heavy, light, other} {
			if w.got < 170 || w.asks > 500 {
				t.Errorf("%s: %d units in ten minutes, with %d asks", w.ask.Campaign.ID, w.got, w.asks)
			}
		}
		if all := heavy.got + light.got + other.got; all < 570 {
			t.Errorf("%d units in ten minutes, 600 are allowed", all)
		}
	})
}

// A daemon that once asked far ahead costs the others nothing once what it was granted has left.
func TestAWindowGetsNarrowerAgain(t *testing.T) {
	testservices.Simulation(t)
	for _, algorithm := range []string{delivery.AlgorithmSliding, delivery.AlgorithmLog, delivery.AlgorithmFixed} {
		simulate(t, func(t *testing.T, s store) {
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, 10*time.Second)}
			q.Windows[0].Algorithm = algorithm
			c := campaign(1000, q)
			now := settle(s, epoch, c)
			far := ask(c, 100)
			far.Horizon = 5 * second
			var list []sent // by the latest time at which they may be sent
			spend := func(a delivery.Ask, until int64) (units int64) {
				for now < until {
					g := take1(s, now, "a", a)
					if g.Units > 0 {
						list = append(list, sent{now + a.Horizon + late, g.Units})
					}
					units += g.Units
					next := now + quantum
					if g.Units < a.Want && g.NextAt > next {
						next = g.NextAt
					}
					now = min(next, now+second)
				}
				now = until
				return units
			}
			spend(far, now+20*second)
			spend(ask(c, 100), now+30*second)
			got := spend(ask(c, 100), now+200*second)
			if least := int64(200*100/10) * 95 / 100; got < least {
				t.Errorf("%s: %d units in 200 s, at least %d are allowed", algorithm, got, least)
			}
			for i := range list {
				if n := within(list[:i+1], list[i].at, 10*second); n > 100 && algorithm != delivery.AlgorithmFixed {
					t.Errorf("%s: %d units in a span", algorithm, n)
				}
			}
		})
	}
}

// A window whose span is edited, or that is added to a quota, counts what its quota remembers: it gives no second helping.
func TestANewWindowCountsWhatItsQuotaRemembers(t *testing.T) {
	testservices.Simulation(t)
	old := windows(20, 10*time.Second, 100, time.Minute)
	for name, next := range map[string][]delivery.Window{
		"longer":              windows(20, 10*time.Second, 100, 61*time.Second),
		"much longer":         windows(20, 10*time.Second, 100, time.Hour),
		"shorter":             windows(20, 10*time.Second, 100, 59*time.Second),
		"between":             windows(20, 10*time.Second, 30, 30*time.Second, 100, time.Minute),
		"the others are gone": windows(30, 30*time.Second),
		"log":                 {{Span: 61 * time.Second, Limit: 100, Algorithm: delivery.AlgorithmLog}},
		"fixed":               {{Span: 61 * time.Second, Limit: 100, Algorithm: delivery.AlgorithmFixed}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s store) {
				was := &delivery.Quota{ID: "q", Revision: 1, Windows: old}
				is := &delivery.Quota{ID: "q", Revision: 2, Windows: next}
				now := settle(s, epoch, campaign(1000, was))
				var list []sent
				spend := func(q *delivery.Quota, until int64) {
					for now < until {
						g := take1(s, now, "a", ask(campaign(1000, q), 50))
						if g.Units > 0 {
							list = append(list, sent{now, g.Units})
						}
						now = min(until, max(now+quantum, g.NextAt), now+second)
					}
				}
				spend(was, now+57*second) // all but a few seconds after the first units were granted
				edit := len(list)
				spend(is, now+90*second)
				for i := edit; i < len(list); i++ {
					for _, w := range next {
						span := min(w.Span, time.Minute).Microseconds()
						if n := within(list[:i+1], list[i].at, span); n > w.Limit {
							t.Fatalf("%d units in %s, %d µs after the edit; limit %d", n, w.Span, list[i].at-list[edit-1].at, w.Limit)
						}
					}
				}
				if len(list) == edit && name != "much longer" {
					t.Error("nothing is sent any more")
				}
			})
		})
	}
}

// A window whose algorithm changes keeps the times of its units, as far as it had them. So a job that waits for units to leave does not
// wait a span from the change on.
func TestAWindowThatCountsInAnotherWayKnowsWhen(t *testing.T) {
	const minute = 60 * second
	slid := minute + second + horizon + late // by when units have left
	for _, tc := range []struct {
		from, to, anchor string
		free             int64 // when there is room again, at the latest, after 20 units that were granted at the beginning
	}{
		{delivery.AlgorithmSliding, delivery.AlgorithmLog, "", slid},
		{delivery.AlgorithmLog, delivery.AlgorithmSliding, "", slid + second},
		{delivery.AlgorithmSliding, delivery.AlgorithmFixed, "", 30*second + minute},
		{delivery.AlgorithmSliding, delivery.AlgorithmFixed, "minute", 30 * second}, // of the minute before
		{delivery.AlgorithmFixed, delivery.AlgorithmSliding, "", 30*second + slid + second},
	} {
		t.Run(tc.from+" to "+tc.to+tc.anchor, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s store) {
				quota := func(rev int64, algorithm, anchor string) *delivery.Quota {
					return &delivery.Quota{ID: "q", Revision: rev, Windows: []delivery.Window{{Limit: 20, Span: time.Minute, Algorithm: algorithm, Anchor: anchor}}}
				}
				begin := (epoch/minute+1)*minute + 45*second
				was, is := campaign(1000, quota(1, tc.from, "")), campaign(1000, quota(2, tc.to, tc.anchor))
				settle(s, begin-second, was)
				if g := take1(s, begin, "a", ask(was, 20)); g.Units != 20 {
					t.Fatalf("%+v", g)
				}
				now := begin + 30*second
				g := take1(s, now, "b", ask(is, 20))
				if now = g.NextAt; g.Units == 0 {
					g = take1(s, now, "b", ask(is, 20))
				}
				if g.Units != 20 || now > begin+tc.free {
					t.Errorf("%d units at %d µs, want 20 by %d", g.Units, now-begin, tc.free)
				}
			})
		})
	}
}

// Windows that a quota does not have any more are forgotten; a daemon that has not heard of it does not bring them back.
func TestWindowsThatAreRemovedAreForgotten(t *testing.T) {
	l := newLua(t, realClient(t))
	many := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Second, 100, time.Minute, 100, time.Hour, 100, 24*time.Hour)}
	few := &delivery.Quota{ID: "q", Revision: 2, Windows: windows(100, time.Second)}
	now := settle(l, epoch, campaign(1000, many))
	take1(l, now, "a", ask(campaign(1000, many), 100))
	size := func() int64 {
		s := l.engine("a").shards[0]
		n, err := s.master.client.StrLen(t.Context(), s.keys.quota("q")).Result()
		must(t, err)
		return n
	}
	before := size()
	for range 3 {
		now += 2 * second
		if g := take1(l, now, "a", ask(campaign(1000, few), 10)); g.Units != 10 {
			t.Errorf("%+v", g)
		}
		take1(l, now, "stale", ask(campaign(1000, many), 10))
	}
	if after := size(); after > before/2 {
		t.Errorf("%d bytes with one window, %d with four", after, before)
	}
}
