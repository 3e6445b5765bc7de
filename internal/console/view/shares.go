package view

import (
	"cmp"
	"context"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/limits"
)

// Waits returns what quotas have refused a campaign, by quota.
func Waits(ctx context.Context, claims func(context.Context, *delivery.Quota) ([]limits.Claim, error), c *delivery.Campaign) (map[string]hold.Wait, error) {
	waits := map[string]hold.Wait{}
	for _, q := range c.Quotas {
		list, err := claims(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			if one.Campaign == c.ID {
				waits[q.ID] = hold.Wait{Asked: one.Asked, Again: one.Due}
			}
		}
	}
	return waits, nil
}

// Share is what one campaign has of a quota.
type Share struct {
	Campaign *Campaign
	Part     float64    // by weight, of the campaigns that have something to send; 0 of others
	Asked    float64    // units per second that its schedule allows while it has something to send
	Waits    *hold.Wait // nil: it was not refused, or it is not known
}

// Shares are what campaigns have of a quota.
type Shares struct {
	List   []Share // those that have most, at most as many as were asked for
	Asking int     // campaigns that have something to send
	Asked  float64 // units per second that these may send by their schedules
	Got    float64 // units per second that are sent
	Joint  []string
	Err    error // why it is not known which of them wait
}

// Shares returns what campaigns have of a quota: those first that get most, then those that ask for most.
func (l *Watcher) Shares(ctx context.Context, s *State, id string, most int) Shares {
	var shares Shares
	weights := 0.0
	for _, c := range s.Campaigns {
		if !slices.Contains(c.Quotas, id) {
			continue
		}
		one := Share{Campaign: c}
		if sends := c.Sent != nil && *c.Sent > 0; sends || c.Backlog != nil && *c.Backlog > 0 && c.Allowed > 0 {
			one.Asked, one.Part = c.Allowed, float64(max(1, c.PriorityWeight))
			shares.Asking, shares.Asked, weights = shares.Asking+1, shares.Asked+c.Allowed, weights+one.Part
			if sends {
				shares.Got += *c.Sent
			}
		}
		shares.List = append(shares.List, one)
	}
	sent := func(one *Share) float64 {
		if one.Campaign.Sent == nil {
			return 0
		}
		return *one.Campaign.Sent
	}
	slices.SortStableFunc(shares.List, func(a, b Share) int { return cmp.Or(cmp.Compare(sent(&b), sent(&a)), cmp.Compare(b.Asked, a.Asked)) })
	shares.List = shares.List[:min(len(shares.List), most)]
	waits, joint, err := l.claimsOn(ctx, s, id)
	shares.Joint, shares.Err = joint, err
	for i := range shares.List {
		one := &shares.List[i]
		one.Part /= max(1, weights)
		one.Waits = waits[one.Campaign.ID]
	}
	return shares
}

// claimsOn returns the campaigns that a quota has refused, and the daemons that have several of them.
func (l *Watcher) claimsOn(ctx context.Context, s *State, id string) (waits map[string]*hold.Wait, joint []string, err error) {
	list, err := l.claimList(ctx, s, id)
	if err != nil || list == nil {
		return nil, nil, err
	}
	waits = map[string]*hold.Wait{}
	for i := range list {
		if one := &list[i]; one.Campaign != "" {
			waits[one.Campaign] = &hold.Wait{Asked: one.Asked, Again: one.Due}
		} else {
			joint = append(joint, one.Daemon)
		}
	}
	return waits, joint, nil
}

// claimList returns the units of a quota that are kept for campaigns; nil if that is not known.
func (l *Watcher) claimList(ctx context.Context, s *State, id string) ([]limits.Claim, error) {
	if l.sources.Claims == nil || s.known == nil || s.known.snapshot == nil || s.known.storeDown {
		return nil, nil
	}
	q := s.known.snapshot.Quotas[id]
	return cached(ctx, l.cache, question{kind: "claims", about: id, fresh: closeFor}, func(ctx context.Context) ([]limits.Claim, error) { return l.sources.Claims(ctx, q) })
}
