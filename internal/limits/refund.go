package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/local"
)

// Refund hands undispatched units back to the shards that granted them. Like a take it is never done twice. Units
// granted from data that a shard has lost since are not handed back to the data that replaced it.
func (e *Engine) Refund(ctx context.Context, grants []delivery.Grant) error {
	var list []delivery.Grant
	for i := range grants {
		g := &grants[i]
		e.restoreCharges(g)
		if g.From.Epoch == local.Epoch {
			e.fallback.Refund(*g)
			continue
		}
		if g.From.Campaign != nil && g.Units > 0 {
			list = append(list, *g)
		}
	}
	return e.refund(ctx, list)
}

// restoreCharges tells those that count in this process that units were not sent.
func (e *Engine) restoreCharges(g *delivery.Grant) {
	if g.From.Campaign == nil || g.Units <= 0 {
		return
	}
	if g.From.Epoch != local.Epoch {
		e.taken.GiveBack(g.From.Shard, g.From.Epoch, g.From.Campaign.Quotas, g.Units, g.GrantedAt)
	}
	for _, q := range g.From.Campaign.Quotas {
		if q.Mode == delivery.ModeEventual && q.Unit != delivery.UnitBytes && q.Covers(g.From.Campaign.ID) {
			e.eventual.GiveBack(q, g.Units) // which jobs' bytes they were is no longer known
		}
	}
}

// refund hands back what was granted by the store.
func (e *Engine) refund(ctx context.Context, grants []delivery.Grant) error {
	lists, costs := make([][]delivery.Grant, len(e.shards)), e.grantCosts(grants)
	for _, g := range grants {
		if shard := g.From.Shard; e.shards[shard].epoch.Load() == g.From.Epoch {
			lists[shard] = append(lists[shard], g)
			e.shards[shard].crowds.returned(g.From.Campaign)
		}
	}
	return forEachShard(e, lists, func(s *shard, list []delivery.Grant) error {
		var errs []error
		for _, part := range byCost(list, func(g delivery.Grant) int { return costs[g.From.Campaign.ID] }) {
			if err := s.once(ctx, refundScript, func(slot *scriptSlot) *call {
				return encodeRefund(s.keys, e.node, slot, part, s.now())
			}); err != nil {
				errs = append(errs, fmt.Errorf("refund %d grants: %w", len(part), err))
			}
		}
		return errors.Join(errs...)
	})
}

// grantCosts is what it costs to hand a grant back, by campaign.
func (e *Engine) grantCosts(grants []delivery.Grant) map[string]int {
	costs, fleet := map[string]int{}, e.fleet()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range grants {
		id, daemons := grants[i].From.Campaign.ID, fleet
		if x := e.homes.known[id]; x != nil && x.daemons > 0 {
			daemons = x.daemons
		}
		costs[id] = max(costs[id], grantCost(&grants[i], daemons))
	}
	return costs
}
