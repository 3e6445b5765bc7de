package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/local"
)

// Refund hands undispatched units back to the shards that granted them. Like a take it is never done twice. Units
// granted from data that a shard has lost since are not handed back to the data that replaced it.
func (e *Engine) Refund(ctx context.Context, grants []delivery.Grant) error {
	lists := make([][]delivery.Grant, len(e.shards))
	for i := range grants {
		g := &grants[i]
		if g.From.Campaign == nil || g.Units <= 0 {
			continue
		}
		e.restoreCharges(g)
		switch s := e.shards[g.From.Shard]; g.From.Epoch {
		case local.Epoch:
			e.fallback.Refund(*g)
		case s.master.epoch():
			lists[s.index] = append(lists[s.index], *g)
			s.contended.Returned(g.From.Campaign)
		}
	}
	return forEachShard(e, lists, func(s *shard, list []delivery.Grant) error {
		var errs []error
		for _, part := range byCost(list, e.grantCost) {
			if err := s.once(ctx, refundScript, func(slot *scriptSlot) *call {
				return encodeRefund(s.keys, e.node, slot, part, s.now())
			}); err != nil {
				errs = append(errs, fmt.Errorf("refund %d grants: %w", len(part), err))
			}
		}
		return errors.Join(errs...)
	})
}

// restoreCharges tells those that count in this process that units were not sent.
func (e *Engine) restoreCharges(g *delivery.Grant) {
	if g.From.Epoch != local.Epoch {
		e.fence.GiveBack(g.From.Shard, g.From.Epoch, g.From.Campaign.Quotas, g.Units, g.GrantedAt)
	}
	for _, q := range g.From.Campaign.Quotas {
		if q.Mode == delivery.ModeEventual && q.Unit != delivery.UnitBytes && q.Covers(g.From.Campaign.ID) {
			e.eventual.GiveBack(q, g.Units) // which jobs' bytes they were is no longer known
		}
	}
}

// grantCost is what it costs to hand a grant back.
func (e *Engine) grantCost(g delivery.Grant) int {
	daemons := e.fleet()
	e.mu.Lock()
	if x := e.homes.known[g.From.Campaign.ID]; x != nil {
		daemons = cmp.Or(x.daemons, daemons)
	}
	e.mu.Unlock()
	cost := lineCost(daemons)
	for _, q := range g.From.Campaign.Quotas {
		cost += windowsCost(q)
	}
	return cost
}
