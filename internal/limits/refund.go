package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
)

// Refund hands undispatched units back, to every shard that they came from. Like a take it is never done twice. What
// came from data that a shard has lost since is not handed back to what took its place.
func (e *Engine) Refund(ctx context.Context, grants []delivery.Grant) error {
	var list []delivery.Grant
	for i := range grants {
		g := &grants[i]
		e.unspend(g)
		if g.From.Incarnation == localIncarnation {
			e.fallback.refund(*g)
			continue
		}
		list = append(list, e.apart(g)...)
	}
	return e.refund(ctx, list)
}

// unspend tells those that count in this process that units were not sent.
func (e *Engine) unspend(g *delivery.Grant) {
	if g.From.Campaign == nil || g.Units <= 0 {
		return
	}
	e.reserve.giveBack(g.From.Campaign.Quotas, g.Units, g.GrantedAt)
	for _, q := range g.From.Campaign.Quotas {
		if q.Mode == delivery.ModeEventual && q.Unit != delivery.UnitBytes {
			e.eventual.giveBack(q, g.Units) // whose bytes they were is not known any more
		}
	}
}

// apart divides a grant by shards. Elsewhere than at home only windows get something back: the timelines there have
// nothing but the campaign's pace.
func (e *Engine) apart(g *delivery.Grant) []delivery.Grant {
	if g.From.Campaign == nil || g.Units <= 0 {
		return nil
	}
	var list []delivery.Grant
	for _, p := range layout(g.From.Campaign, len(e.shards)) {
		if p.shard == g.From.Shard {
			local := *g
			local.From.Campaign = p.campaign
			list = append(list, local)
		}
		for _, d := range g.From.Elsewhere {
			if p.shard == d.Shard {
				list = append(list, delivery.Grant{
					Units: g.Units, GrantedAt: d.GrantedAt,
					From: delivery.Provenance{Shard: d.Shard, Incarnation: d.Incarnation, Campaign: p.campaign},
				})
			}
		}
	}
	return list
}

// refund hands grants back of which each is one shard's.
func (e *Engine) refund(ctx context.Context, grants []delivery.Grant) error {
	lists := make([][]delivery.Grant, len(e.shards))
	var concerned []*shard
	for _, g := range grants {
		s := e.shards[g.From.Shard]
		if s.incarnation.Load() != g.From.Incarnation {
			continue
		}
		if lists[s.index] == nil {
			concerned = append(concerned, s)
		}
		lists[s.index] = append(lists[s.index], g)
	}
	return e.each(concerned, func(s *shard) error {
		var errs []error
		for list := lists[s.index]; len(list) > 0; {
			n := min(len(list), maxItems)
			errs = append(errs, e.refundBatch(ctx, s, list[:n]))
			list = list[n:]
		}
		return errors.Join(errs...)
	})
}

func (e *Engine) refundBatch(ctx context.Context, s *shard, grants []delivery.Grant) error {
	slots, err := s.acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer s.release(slots)
	c := encodeRefund(s.keys, e.node, slots[0], grants, s.now())
	s.run(ctx, refundScript, []*call{c})
	if c.err != nil {
		return fmt.Errorf("refund %d grants: %w", len(grants), c.err)
	}
	return nil
}
