package model_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// given is a slot that is granted and not handed back.
type given struct {
	at, spacing int64
}

// However daemons take slots, hand them back and hear of changes of the rate, no slot is closer to the next than the
// faster of their two rates allows, and none is granted twice.
func TestHolesNeverOverGrant(t *testing.T) {
	rates := []int64{10, 60, 333, 1_000, 5_000}
	rapid.Check(t, func(rt *rapid.T) {
		s, now := model.NewStore(), epoch
		c := &delivery.Campaign{ID: "c", Revision: 1, Rate: delivery.PerSecond(1_000)}
		held := map[string][]delivery.Grant{} // by daemon
		heard := map[string]*delivery.Campaign{"a": c, "b": c, "c": c}
		for range rapid.IntRange(5, 80).Draw(rt, "steps") {
			now += rapid.SampledFrom([]int64{0, 500, 3_000, 9_001, 25_000}).Draw(rt, "pass")
			node := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "node")
			switch rapid.IntRange(0, 7).Draw(rt, "action") {
			case 0: // the rate changes, and one daemon hears of it
				next := *c
				next.Revision++
				next.Rate = delivery.PerSecond(rapid.SampledFrom(rates).Draw(rt, "rate"))
				c = &next
				heard[node] = c
			case 1, 2: // a daemon hears of the newest rate, and hands back what it holds
				heard[node] = c
				slices.Reverse(held[node])
				s.Refund(now, held[node])
				held[node] = nil
			case 3: // it hands back the end of one of its grants
				if n := len(held[node]); n > 0 {
					g := &held[node][rapid.IntRange(0, n-1).Draw(rt, "grant")]
					back := *g
					back.Units = rapid.Int64Range(1, g.Units).Draw(rt, "back")
					back.First = g.First.Advance(g.Units-back.Units, g.Rate)
					g.Units -= back.Units
					held[node] = slices.DeleteFunc(held[node], func(g delivery.Grant) bool { return g.Units == 0 })
					s.Refund(now, []delivery.Grant{back})
				}
			default:
				g := s.Take(now, node, []delivery.Ask{{
					Campaign: heard[node], Want: rapid.SampledFrom([]int64{1, 20, delivery.MaxGrant}).Draw(rt, "want"),
					Horizon: horizon, Quantum: quantum, LateTolerance: late,
				}}).Items[0]
				if g.Units > 0 {
					held[node] = append(held[node], g.Grant())
				}
			}
		}
		var live []given
		for _, list := range held {
			for _, g := range list {
				for k := range g.Units {
					live = append(live, given{g.First.Advance(k, g.Rate).Micros(), g.Rate.Per / g.Rate.N})
				}
			}
		}
		slices.SortFunc(live, func(a, b given) int { return cmp.Compare(a.at, b.at) })
		for i := 1; i < len(live); i++ {
			a, b := live[i-1], live[i]
			if b.at-a.at < min(a.spacing, b.spacing)-1 {
				rt.Fatalf("slots %d and %d microseconds after the begin, of %d and %d per second",
					a.at-epoch, b.at-epoch, 1_000_000/a.spacing, 1_000_000/b.spacing)
			}
		}
	})
}
