package view

import (
	"cmp"
	"slices"
)

// Share is what one campaign has of a quota.
type Share struct {
	Campaign *Campaign
	Part     float64 // by weight, of the campaigns that have something to send; 0 of others
	Asked    float64 // units per second that its schedule allows while it has something to send
}

// Shares are what campaigns have of a quota.
type Shares struct {
	List   []Share // those that have most, at most as many as were asked for
	Asking int     // campaigns that have something to send
	Asked  float64 // units per second that these may send by their schedules
	Got    float64 // units per second that are sent
}

// Shares returns what campaigns have of a quota: those first that get most, then those that ask for most.
func (s *State) Shares(id string, most int) Shares {
	var shares Shares
	weights := 0.0
	for _, c := range s.Campaigns {
		if !slices.Contains(c.Quotas, id) {
			continue
		}
		one := Share{Campaign: c}
		if sent := orZero(c.Sent); sent > 0 || orZero(c.Backlog) > 0 && c.Allowed > 0 {
			one.Asked, one.Part = c.Allowed, float64(max(1, c.PriorityWeight))
			shares.Asking, shares.Asked, weights = shares.Asking+1, shares.Asked+c.Allowed, weights+one.Part
			shares.Got += sent
		}
		shares.List = append(shares.List, one)
	}
	slices.SortStableFunc(shares.List, func(a, b Share) int {
		return cmp.Or(cmp.Compare(orZero(b.Campaign.Sent), orZero(a.Campaign.Sent)), cmp.Compare(b.Asked, a.Asked))
	})
	shares.List = shares.List[:min(len(shares.List), most)]
	for i := range shares.List {
		shares.List[i].Part /= max(1, weights)
	}
	return shares
}
