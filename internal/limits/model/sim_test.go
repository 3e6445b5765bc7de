package model_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/testservices"
)

const (
	horizon = limitstest.Horizon
	quantum = limitstest.Quantum
	late    = limitstest.Late
	epoch   = limitstest.Epoch
)

// asker is one daemon with a bottomless queue for one campaign.
type asker struct {
	node     string
	campaign *delivery.Campaign
	at       int64 // next ask
	want     int64
	horizon  int64
	quantum  int64
	granted  int64
	slots    []int64
	heldTo   int64
}

// greedy is one that wants all it can get.
func greedy(node string, c *delivery.Campaign, at int64) *asker {
	return &asker{node: node, campaign: c, want: delivery.MaxGrant, horizon: horizon, quantum: quantum, at: at}
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
		Campaign: a.campaign, Want: a.want, Horizon: a.horizon, Quantum: a.quantum, LateTolerance: late, LastGranted: a.heldTo,
	}}).Items[0]
	for i := int64(0); i < g.Units; i++ {
		a.slots = append(a.slots, g.First.Advance(i, g.Rate).Micros())
	}
	if g.Units > 0 {
		a.heldTo = a.slots[len(a.slots)-1]
	}
	a.granted += g.Units
	a.at += a.quantum
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

// Daemons that always have jobs use all slots of a rate, whatever their quantum, and each has its part of them.
func TestSaturatedDaemonsShareATimeline(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for _, rate := range []struct {
		micros  int64
		per     time.Duration
		seconds int64
	}{
		{1_000_000, time.Hour, 300 * 3600}, {150_000_000, time.Minute, 300}, {1_000_000, time.Second, 600}, {2_310_000, time.Second, 900},
		{2_500_000, time.Second, 600}, {10_000_000, time.Second, 60}, {40_000_000, time.Second, 60}, {60_000_000, time.Second, 60},
		{150_000_000, time.Second, 60}, {1_000_000_000, time.Second, 10}, {10_000_000_000, time.Second, 10},
		{33_333_333_333, time.Second, 2}, {250_000_000_000, time.Second, 2},
	} {
		for _, ms := range []int64{10, 25, 40, 250} {
			for _, daemons := range []int{1, 2, 3, 5} {
				t.Run(fmt.Sprintf("%gper%s/%dms/%d", float64(rate.micros)/1e6, rate.per, ms, daemons), func(t *testing.T) {
					t.Parallel()
					s, rnd := model.NewStore(), rand.New(rand.NewPCG(uint64(rate.micros), uint64(daemons)))
					r, err := delivery.NewRate(rate.micros, rate.per)
					if err != nil {
						t.Fatal(err)
					}
					c := &delivery.Campaign{ID: "c", Rate: r}
					s.Take(epoch-1_000_000, "settler", []delivery.Ask{{Campaign: c}}) // lets the phase of the first slot pass
					var askers []*asker
					for i := range daemons {
						a := greedy(fmt.Sprint("n", i), c, epoch+rnd.Int64N(ms*1000))
						a.quantum, a.horizon = ms*1000, 3*ms*1000
						askers = append(askers, a)
					}
					simulate(s, askers, epoch+rate.seconds*1_000_000, rnd)
					all, second := slotsOf(askers), r.UnitsIn(time.Second)
					want, each := r.UnitsIn(time.Duration(rate.seconds)*time.Second), r.UnitsIn(time.Duration(ms)*time.Millisecond)
					if got := int64(len(all)); (got+each)*1000 < want*995 || got > want+3*each+3 {
						t.Errorf("granted %d, want %d", got, want)
					}
					if most := limitstest.Rolling(all, 1_000_000); most > second+1 {
						t.Errorf("%d in a rolling second", most)
					}
					for _, a := range askers {
						fair := float64(len(all)) / float64(daemons)
						if d := float64(a.granted)/fair - 1; (d > 0.05 || d < -0.05) && rate.seconds >= 10 && ms <= 40 { // over many turns
							t.Errorf("%s got %d, fair is %.0f (%+.1f%%)", a.node, a.granted, fair, 100*d)
						}
					}
				})
			}
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
			small = append(small, &asker{node: fmt.Sprint(i), campaign: c, horizon: horizon, quantum: quantum})
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
