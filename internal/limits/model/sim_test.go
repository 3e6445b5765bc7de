package model_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	horizon = 75_000
	quantum = 25_000
	late    = 20_000
	epoch   = int64(1_790_000_000_000_000)
)

// asker is one daemon with a bottomless queue for one campaign.
type asker struct {
	node     string
	campaign *delivery.Campaign
	at       int64 // next ask
	want     int64
	horizon  int64
	granted  int64
	slots    []int64
	heldTo   int64
}

// greedy is one that wants all it can get.
func greedy(node string, c *delivery.Campaign, at int64) *asker {
	return &asker{node: node, campaign: c, want: delivery.MaxGrant, horizon: horizon, at: at}
}

// slotsOf are those of all daemons, in order.
func slotsOf(askers []*asker) (all []int64) {
	for _, a := range askers {
		all = append(all, a.slots...)
	}
	slices.Sort(all)
	return all
}

// ask takes once and plans the next ask: a quantum (with some jitter) later, or at NextAt if that is further off.
func (a *asker) ask(s *model.Store, rnd *rand.Rand) delivery.Granted {
	g := s.Take(a.at, a.node, []delivery.Ask{{
		Campaign: a.campaign, Want: a.want, Horizon: a.horizon, Quantum: quantum, LateTolerance: late, LastGranted: a.heldTo,
	}}).Items[0]
	for i := int64(0); i < g.Units; i++ {
		a.slots = append(a.slots, g.First.Advance(i, g.Rate).Micros())
	}
	if g.Units > 0 {
		a.heldTo = a.slots[len(a.slots)-1]
	}
	a.granted += g.Units
	a.at += quantum
	if g.Units < a.want && g.NextAt > a.at {
		a.at = g.NextAt
	}
	a.at += rnd.Int64N(3_000)
	return g
}

// simulate runs the askers, always the one whose turn it is, until the given time.
func simulate(s *model.Store, askers []*asker, until int64, rnd *rand.Rand) {
	for {
		first := slices.MinFunc(askers, func(a, b *asker) int { return cmp.Compare(a.at, b.at) })
		if first.at >= until {
			return
		}
		first.ask(s, rnd)
	}
}

// rolling is the largest number of the (ascending) events in any stretch of the given length.
func rolling(events []int64, length int64) int64 {
	most, from := 0, 0
	for i, e := range events {
		for events[from] <= e-length {
			from++
		}
		most = max(most, i-from+1)
	}
	return int64(most)
}

func TestSaturatedDaemonsShareATimeline(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{1_000_000, 2_500_000, 10_000_000, 40_000_000, 60_000_000, 150_000_000, 1_000_000_000, 10_000_000_000} {
		for _, k := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%gps/%d", float64(rate)/1e6, k), func(t *testing.T) {
				t.Parallel()
				length := 60 * int64(time.Second/time.Microsecond)
				switch {
				case rate >= 1_000_000_000:
					length /= 6
				case rate < 10_000_000:
					length *= 10
				}
				s, rnd := model.NewStore(), rand.New(rand.NewPCG(uint64(rate), uint64(k)))
				perSecond, err := delivery.NewRate(rate, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				c := &delivery.Campaign{ID: "c", Rate: perSecond}
				var askers []*asker
				for i := range k {
					askers = append(askers, greedy(fmt.Sprintf("n%d", i), c, epoch+rnd.Int64N(quantum)))
				}
				simulate(s, askers, epoch+length, rnd)
				all := slotsOf(askers)
				possible := float64(rate) / 1e6 * float64(length) / 1e6
				if used := float64(len(all)) / possible; used < 0.999-2/possible-0.2*float64(rate)/1e6/possible {
					t.Errorf("used %.4f of the slots", used)
				}
				if most := rolling(all, 1_000_000); float64(most) > float64(rate)/1e6+1 {
					t.Errorf("%d in a rolling second", most)
				}
				for _, a := range askers {
					fair := float64(len(all)) / float64(k)
					if d := float64(a.granted)/fair - 1; d > 0.05 || d < -0.05 {
						t.Errorf("%s got %d, fair is %.0f (%+.1f%%)", a.node, a.granted, fair, 100*d)
					}
				}
			})
		}
	}
}

// One daemon has the backlog, nine have few jobs each: what the nine leave, the one uses.
func TestDaemonsWithFewJobsDoNotSlowTheOneWithMany(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{10, 100, 1_000} {
		s, rnd := model.NewStore(), rand.New(rand.NewPCG(1, uint64(rate)))
		c := &delivery.Campaign{ID: "c", Rate: delivery.PerSecond(rate)}
		owner := greedy("owner", c, epoch)
		var small []*asker
		for i := range 9 {
			small = append(small, &asker{node: fmt.Sprint(i), campaign: c, horizon: horizon})
		}
		// Each of the nine has a job every 40 slots: together 22.5 % of the rate.
		every := 40 * c.Rate.Spacing()
		var waits []int64
		due := make([]int64, len(small))
		for i := range due {
			due[i] = epoch + rnd.Int64N(every)
			small[i].at = due[i]
		}
		end := epoch + 60_000_000
		for owner.at < end {
			next, who := owner.at, -1
			for i, a := range small {
				if a.at < next {
					next, who = a.at, i
				}
			}
			if who < 0 {
				owner.ask(s, rnd)
				continue
			}
			a := small[who]
			a.want = 1
			if g := a.ask(s, rnd); g.Units == 1 {
				waits = append(waits, g.First.Micros()-due[who])
				due[who] += every
				a.at = max(due[who], a.at)
			}
		}
		total := owner.granted
		for _, a := range small {
			total += a.granted
		}
		if used := float64(total) / float64(rate*60); used < 0.995 {
			t.Errorf("%d/s: used %.4f", rate, used)
		}
		served := float64(total-owner.granted) / (60e6 * 9 / float64(every))
		if served < 0.97 {
			t.Errorf("%d/s: daemons with few jobs got %.3f of what they had", rate, served)
		}
		slices.Sort(waits)
		if p90 := waits[len(waits)*9/10]; p90 > horizon+5*c.Rate.Spacing() {
			t.Errorf("%d/s: they waited %d µs", rate, p90)
		}
	}
}

// A daemon that goes away leaves its share to the others.
func TestAVanishedDaemonLeavesItsShare(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{10, 100, 5_000} {
		s, rnd := model.NewStore(), rand.New(rand.NewPCG(2, uint64(rate)))
		c := &delivery.Campaign{ID: "c", Rate: delivery.PerSecond(rate)}
		a, b := greedy("a", c, epoch), greedy("b", c, epoch)
		simulate(s, []*asker{a, b}, epoch+10_000_000, rnd)
		before := a.granted + b.granted
		a.at = max(a.at, epoch+10_000_000)
		simulate(s, []*asker{a}, epoch+20_000_000, rnd)
		if got := a.granted + b.granted - before; got < rate*10-rate*3/40-2 {
			t.Errorf("%d/s: %d after the other one went", rate, got)
		}
	}
}

type quotaCase struct {
	name    string
	windows []delivery.Window
	rates   []int64
	nodes   int
	weights []int64
	seconds int64
	fair    []float64 // shares, if not in proportion to the weights
}

func sliding(limit int64, span time.Duration) delivery.Window {
	return delivery.Window{Span: span, Limit: limit, Algorithm: "sliding"}
}

func TestCampaignsShareAQuota(t *testing.T) {
	t.Parallel()
	three := []delivery.Window{sliding(40, time.Second), sliding(150, 5*time.Second), sliding(400, 20*time.Second)}
	for _, tc := range []quotaCase{
		{"two over two nodes", []delivery.Window{sliding(60, 2*time.Second)}, []int64{100, 100}, 2, []int64{1, 1}, 60, nil},
		{"two over three nodes", []delivery.Window{sliding(60, 2*time.Second)}, []int64{100, 100}, 3, []int64{1, 1}, 60, nil},
		{"three windows", three, []int64{200, 200, 200}, 2, []int64{1, 1, 1}, 120, nil},
		{"weighted", []delivery.Window{sliding(60, 2*time.Second)}, []int64{100, 100}, 2, []int64{3, 1}, 60, nil},
		{"unequal rates", []delivery.Window{sliding(300, 10*time.Second)}, []int64{60, 400}, 3, []int64{1, 1}, 120, nil},
		{"below its share", []delivery.Window{sliding(60, 2*time.Second)}, []int64{10, 100}, 2, []int64{1, 1}, 60, []float64{10. / 29.2, 19.2 / 29.2}},
		{"fast", []delivery.Window{sliding(5_000, time.Second)}, []int64{10_000, 4_000}, 3, []int64{1, 1}, 10, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			shareQuota(t, tc)
		})
	}
}

func shareQuota(t *testing.T, tc quotaCase) {
	s, rnd := model.NewStore(), rand.New(rand.NewPCG(3, 3))
	q := &delivery.Quota{ID: "q", Windows: tc.windows}
	short := tc.windows[0].Span.Microseconds()
	hz := min(horizon, max(quantum, short/50))
	var askers []*asker
	for i, r := range tc.rates {
		c := &delivery.Campaign{ID: fmt.Sprintf("c%d", i), Rate: delivery.PerSecond(r), Quotas: []*delivery.Quota{q}, PriorityWeight: tc.weights[i]}
		for n := range tc.nodes {
			a := greedy(fmt.Sprintf("n%d", n), c, epoch+rnd.Int64N(quantum))
			a.horizon = hz
			askers = append(askers, a)
		}
	}
	simulate(s, askers, epoch+tc.seconds*1_000_000, rnd)
	all, got, perNode := slotsOf(askers), map[string]int64{}, map[string]int64{}
	for _, a := range askers {
		got[a.campaign.ID] += a.granted
		perNode[a.campaign.ID+a.node] += a.granted
	}
	use := 0.0
	for _, w := range tc.windows {
		span := w.Span.Microseconds()
		if most := rolling(all, span); most > w.Limit {
			t.Errorf("%d in a rolling %s, limit %d", most, w.Span, w.Limit)
		}
		spans := float64(tc.seconds*1_000_000) / float64(span)
		bound := float64(span) / (float64(span) + float64(span)/60 + float64(hz) + late)
		use = max(use, float64(len(all))/(spans*float64(w.Limit))/bound)
	}
	if use < 0.95 {
		t.Errorf("used %.3f of what the tightest window allows", use)
	}
	var weights int64
	for _, w := range tc.weights {
		weights += w
	}
	for i, w := range tc.weights {
		id := fmt.Sprintf("c%d", i)
		fair := float64(len(all)) * float64(w) / float64(weights)
		if tc.fair != nil {
			fair = float64(len(all)) * tc.fair[i]
		}
		if d := float64(got[id])/fair - 1; d > 0.05 || d < -0.05 {
			t.Errorf("%s got %d, fair is %.0f (%+.1f%%)", id, got[id], fair, 100*d)
		}
	}
	for k, n := range perNode {
		if fair := float64(got[k[:2]]) / float64(tc.nodes); float64(n) < fair/2 {
			t.Errorf("%s got %d of %.0f: a daemon is starved", k, n, fair)
		}
	}
	t.Logf("use %.3f of the bound, %v, nodes %v", use, got, perNode)
}
