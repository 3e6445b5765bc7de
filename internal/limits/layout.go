package limits

import (
	"hash/fnv"

	"github.com/pacer/pacer/internal/delivery"
)

// part is what one shard has to do with a campaign. The campaign has the quotas that live there and no others.
type part struct {
	shard    int
	campaign *delivery.Campaign
}

// layout says where a campaign and its quotas live. The first part is the campaign's home: the shard of its first
// quota, where its timeline is. One without quotas in the store lives where its id says. Each of the others, if any,
// keeps a timeline of the campaign, too, so that it can be asked for its quotas as a home is.
func layout(c *delivery.Campaign, shards int) []part {
	var parts []part
	rest := 0 // quotas that need not be asked for
	for _, q := range c.Quotas {
		if !counts(q) {
			if len(q.Windows) > 0 {
				rest++
			}
			continue
		}
		shard, known := shardOf(q, shards), false
		for _, p := range parts {
			known = known || p.shard == shard
		}
		if !known {
			parts = append(parts, part{shard: shard, campaign: c})
		}
	}
	if len(parts) == 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(c.ID)) // never fails
		parts = []part{{shard: int(h.Sum32() % uint32(shards)), campaign: c}}
	}
	if len(parts) > 1 || rest > 0 {
		for i := range parts {
			parts[i].campaign = within(c, parts[i].shard, shards)
		}
	}
	return parts
}

// within is the campaign with the quotas of one shard.
func within(c *delivery.Campaign, shard, shards int) *delivery.Campaign {
	local := *c
	local.Quotas = nil
	for _, q := range c.Quotas {
		if counts(q) && shardOf(q, shards) == shard {
			local.Quotas = append(local.Quotas, q)
		}
	}
	return &local
}

// shardOf is where a quota's counts live.
func shardOf(q *delivery.Quota, shards int) int { return int(uint(q.Shard) % uint(shards)) }

const (
	forgetAfter = 600_000_000 // microseconds without an ask after which a campaign's home is forgotten
	sweepEvery  = 60_000_000
	maxHomes    = 100_000
)

// homes remembers where the campaigns were asked for last. Nothing in it is needed but for a campaign that moves: its
// timelines know nothing of each other.
type homes struct {
	known map[string]*home
	swept int64 // local time of the latest sweep
}

// home is what is remembered of one campaign. Times are the engine's local ones.
type home struct {
	campaign *delivery.Campaign // as it was last asked for
	parts    []part             // its layout
	asked    int64              // when
	reach    int64              // how long after an ask its slots may be used
	moved    bool               // since it is known
	closed   int64              // until when nothing is asked for, so that the slots of the last home are over
	latest   int64              // store time of the latest slot granted since it moved
}

// at brings the campaign's home up to date with an ask. A campaign that moved must not be granted slots before those of
// its last home are over.
func (h *homes) at(a *delivery.Ask, shards int, now int64) *home {
	h.sweep(now)
	x := h.known[a.Campaign.ID]
	if x == nil {
		x = &home{}
		h.known[a.Campaign.ID] = x
	}
	if x.campaign != a.Campaign {
		was := x.parts
		x.campaign, x.parts = a.Campaign, layout(a.Campaign, shards)
		if was != nil && was[0].shard != x.parts[0].shard {
			x.moved, x.latest = true, 0
			x.closed = now + max(x.reach, a.Horizon+a.LateTolerance)
		}
	}
	x.asked, x.reach = now, a.Horizon+a.LateTolerance
	return x
}

func (h *homes) sweep(now int64) {
	if len(h.known) < maxHomes && now < h.swept+sweepEvery {
		return
	}
	h.swept = now
	for id, x := range h.known {
		if now > x.asked+forgetAfter {
			delete(h.known, id)
		}
	}
	if len(h.known) >= maxHomes {
		clear(h.known)
	}
}

// heldUntil is what a daemon holds on the timeline of the campaign's present home.
func (x *home) heldUntil(asked int64) int64 {
	if x.moved {
		return min(asked, x.latest)
	}
	return asked
}

// granted notes slots on the timeline of the campaign's present home.
func (x *home) granted(g *delivery.Granted) {
	if x.moved && g.Units > 0 {
		x.latest = max(x.latest, g.First.Advance(g.Units-1, g.Rate).Micros())
	}
}
