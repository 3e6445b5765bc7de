package pacer

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// toldAfter is how long after a change of its limits the store is told of a campaign that has no jobs here: daemons that
	// have jobs of it hand back their slots first, and tell the store themselves.
	toldAfter = time.Second
	// maxTold bounds the campaigns of which the store is told in one round of maintenance, and maxLooked those that are looked
	// at: any of them, so that each has its turn.
	maxTold   = 256
	maxLooked = 2048
	// newsFor is how long after its change the store is told of a campaign that gets jobs only then.
	newsFor = time.Hour
)

// news are the campaigns whose limits have changed, with the local times at which the store is to be told. The store uses
// the highest revision that it has seen, but sees only those of the daemons that ask. All jobs of a campaign may be at a
// daemon that cannot read the catalog: without the news it would go on with the limits that it knows.
// Of campaigns that nobody has jobs of, the store is not told before somebody has: all campaigns of a large catalog may change
// at once.
type news map[string]untold

// untold is a campaign as it was before its limits changed, and the local time at which the store is to be told.
type untold struct {
	was *delivery.Campaign
	due int64
}

// note adds the campaigns whose limits differ between two snapshots.
func (n news) note(was, is *delivery.Snapshot, now instant) {
	if was == nil {
		return
	}
	for id := range is.Changed(was) {
		c, before := is.Campaigns[id], was.Campaigns[id]
		if before != nil && c != nil && before != c && relimited(before, c) {
			if _, known := n[id]; !known {
				n[id] = untold{was: before, due: now.in(toldAfter)}
			}
		}
	}
}

// relimited reports whether two rows of a campaign differ in what the store enforces.
func relimited(a, b *delivery.Campaign) bool {
	ramps := (a.Ramp == nil) != (b.Ramp == nil) || a.Ramp != nil && *a.Ramp != *b.Ramp
	return ramps || a.Rate != b.Rate || !slices.EqualFunc(a.Quotas, b.Quotas, func(x, y *delivery.Quota) bool {
		return x.ID == y.ID && x.Revision == y.Revision
	})
}

// shardOf is the shard of the store in which the campaign's quotas are counted, -1 if it has none there.
func shardOf(c *delivery.Campaign) int {
	for _, q := range c.Quotas {
		if len(q.Windows) > 0 && q.Mode != delivery.ModeEventual {
			return q.Shard
		}
	}
	return -1
}

// tellStore tells the store of the campaigns that are due, by asks that want nothing. Those with jobs here are asked for anyway.
func (p *Pacer) tellStore(now instant) {
	var asks []delivery.Ask
	looked := 0
	for id, told := range p.upkeep.news {
		if looked++; looked > maxLooked || len(asks) == maxTold {
			break
		}
		old := now.local-told.due > newsFor.Microseconds()
		if told.due > now.local || !old && p.opt.HasJobs != nil && !p.opt.HasJobs(id) {
			continue
		}
		if delete(p.upkeep.news, id); old {
			continue
		}
		c := p.campaigns.current(id, now)
		if q := p.queues.byID[id]; q != nil && !q.empty() && (c == nil || shardOf(c) == shardOf(told.was)) {
			continue
		}
		if c == nil || c.Status != delivery.StatusActive || c.Invalid != "" {
			continue
		}
		asks = append(asks, delivery.Ask{
			Campaign: c, Horizon: p.horizon(c), Quantum: p.quantum.length, LateTolerance: p.opt.LateTolerance.Microseconds(),
			Was: told.was,
		})
	}
	if len(asks) == 0 || p.drain.stopped {
		return
	}
	p.background(func(ctx context.Context) {
		reply, err := p.opt.Limiter.Take(ctx, asks)
		if err == nil && !slices.ContainsFunc(reply.Items, func(g delivery.Granted) bool { return g.Late }) {
			return
		}
		p.inbox.do(func(now instant) {
			for i, a := range asks {
				if i >= len(reply.Items) || reply.Items[i].GrantedAt == 0 {
					p.upkeep.news[a.Campaign.ID] = untold{was: a.Was, due: now.in(toldAfter)}
				}
			}
		})
	})
}
