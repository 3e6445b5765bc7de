package progress

import (
	"fmt"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestSenders: those that read its lanes, as the last to have taken one over says, or have jobs of it; not those that have died.
func TestSenders(t *testing.T) {
	c := &delivery.Campaign{ID: "c"}
	hash := delivery.CampaignHash("c")
	reads := func(generation int32, lanes ...int) delivery.LanesBacklog {
		b := delivery.LanesBacklog{Generation: generation}
		for _, lane := range lanes {
			of := hash
			if lane > 6 {
				of++
			}
			b.Lanes = append(b.Lanes, delivery.LaneBacklog{Lane: lane, Waiting: []delivery.CampaignCount{{Campaign: of, Jobs: 1}}})
		}
		return b
	}
	parts := []reported{
		{daemon: "b", part: &part{Lanes: reads(2, 3, 7), Memory: map[uint64]memory{hash: {Jobs: 12, InHand: 2}}}},
		{daemon: "a", part: &part{Lanes: reads(2, 5, 4)}},
		{daemon: "c", part: &part{Lanes: reads(1, 4)}}, // it has lost that one
		{daemon: "d", part: &part{Lanes: reads(2, 8), Memory: map[uint64]memory{hash + 1: {Jobs: 5}}}},
		{daemon: "e", part: &part{Memory: map[uint64]memory{hash: {Jobs: 1}}}}, // from ingress
		{daemon: "f", part: &part{Lanes: reads(2, 6), Memory: map[uint64]memory{hash: {Jobs: 9}}}, age: freshFor},
	}
	if got, want := fmt.Sprint(sendersOf(parts, c)), "[{a [4 5] 0 0} {b [3] 12 2} {e [] 1 0}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
