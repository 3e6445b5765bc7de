package limits

import (
	"hash/fnv"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// homeOf is the shard of a campaign: that of its quotas, which share one, whether they have windows yet or not. The shard of a campaign
// without quotas in the store is chosen by its id. A change of its home changes its revision, which stopOldShard relies on.
func homeOf(c *delivery.Campaign, count int) int {
	for _, q := range c.Quotas {
		if inShard(q) {
			return shards.Of(uint64(q.Shard), count)
		}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.ID)) // never fails
	return shards.Of(uint64(h.Sum32()), count)
}

// inShard reports whether the windows of a quota are kept in a shard, as the database has it.
func inShard(q *delivery.Quota) bool { return q.Mode != delivery.ModeEventual }

const (
	forgetAfter = 600_000_000 // microseconds without an ask after which a campaign's home is forgotten
	sweepEvery  = 60_000_000
	maxHomes    = 100_000
)

// homes is the shards of the campaigns that were asked for lately. A campaign that moves has timelines in two shards, which do not know of
// each other.
type homes struct {
	known map[string]*home
	swept int64 // uptime of the latest sweep
}

// home is the state kept for one campaign. Times are the machine's uptime.
type home struct {
	campaign *delivery.Campaign // as it was last asked for
	shard    int                // -1: none yet
	asked    int64              // when
	reach    int64              // how long after an ask its slots may be used
	closed   int64              // nothing is asked for before this, so that the slots of the last home have passed
	left     []int              // shards that have not been told yet that it has moved away
	tell     int64              // until when they are waited for
	moved    bool               // and was granted nothing since
	last     int64              // of the slots in the shards that it left, store time less all jumps of the present shard's clock; 0: none
	daemons  int64              // on its timeline, at the last answer
}

// waitFor is how long a shard that a campaign has left is waited for, in microseconds.
const waitFor = 10_000_000

// at updates the campaign's home for an ask. A campaign that moved must not be granted slots before those of its last
// home have passed, and before daemons that do not know of the move are granted none there any more.
func (h *homes) at(a *delivery.Ask, count int, now int64) *home {
	h.sweep(now)
	x := h.known[a.Campaign.ID]
	if x == nil {
		x = &home{shard: -1}
		h.known[a.Campaign.ID] = x
	}
	if x.campaign != a.Campaign {
		x.campaign = a.Campaign
		x.settle(homeOf(a.Campaign, count), a, now)
	}
	x.asked, x.reach = now, a.Horizon+a.LateTolerance
	return x
}

// settle moves the campaign to a shard, unless it is there.
func (x *home) settle(shard int, a *delivery.Ask, now int64) {
	if x.shard >= 0 && x.shard != shard {
		x.moved, x.last = true, 0
		x.closed = now + max(x.reach, a.Horizon+a.LateTolerance)
		x.left, x.tell = append(x.without(shard), x.shard), now+waitFor
	}
	x.shard = shard
}

// without is the shards that it has left, less one.
func (x *home) without(shard int) []int {
	return slices.DeleteFunc(slices.Clone(x.left), func(is int) bool { return is == shard })
}

// stopOldShard returns the ask for a shard that the campaign has left. It stops the timeline there. Its revision is above those of all
// daemons that do not know of the move, and below those that might bring the campaign back.
func (x *home) stopOldShard(a *delivery.Ask) *delivery.Ask {
	return &delivery.Ask{
		Campaign: &delivery.Campaign{ID: a.Campaign.ID, Revision: a.Campaign.Revision - 1, Rate: delivery.Rate{Per: a.Campaign.Rate.Per}},
		Horizon:  a.Horizon, Quantum: a.Quantum, LateTolerance: a.LateTolerance,
	}
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

// lastGranted is the slot after which the campaign's timeline goes on: the daemon's own last one or, if it has none in this shard, the last
// one in the shards that were left. The clock of the shard has jumped by jumped.
func (x *home) lastGranted(a *delivery.Ask, jumped int64) int64 {
	last, by := a.LastGranted, jumped-a.Jumped
	if x.moved {
		last, by = x.last, jumped
	}
	if last == 0 {
		return 0
	}
	return last + by
}

// granted records an answer about the timeline of the campaign's present home.
func (x *home) granted(g *delivery.Granted) {
	if g.GrantedAt > 0 {
		x.daemons = g.Daemons
	}
	if g.Units > 0 {
		x.moved = false
	}
}
