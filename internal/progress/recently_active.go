package progress

import (
	"maps"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// refreshListed switches to a new snapshot of the catalog.
func (t *Tracker) refreshListed() {
	s := t.opt.Snapshot()
	if s == nil || s == t.snapshot {
		return
	}
	was, gone := t.snapshot, false
	if was == nil {
		was, t.byHash = &delivery.Snapshot{}, make(map[uint64]*delivery.Campaign, len(s.Campaigns))
	}
	for id := range s.Changed(was) {
		c, hash := s.Campaigns[id], delivery.CampaignHash(id)
		if c == nil {
			gone = true
			delete(t.byHash, hash)
			delete(t.watched, id)
			continue
		}
		t.byHash[hash] = c
		if t.matters(c) {
			t.watched[id] = c
		} else {
			delete(t.watched, id)
		}
	}
	t.snapshot = s
	if gone {
		known := func(campaign uint64) bool { return t.byHash[campaign] != nil }
		t.merger.sent.forget(known)
		t.merger.done.forget(known)
	}
}

// matters reports whether there is something to find out about a campaign although it has no jobs.
func (t *Tracker) matters(c *delivery.Campaign) bool {
	_, sink := t.opt.Sink(c.Sink)
	return !sink || c.Invalid != "" || c.ExpectedTotal > 0 || !c.FinishBy.IsZero()
}

const (
	// maxIdle is the size of the catalog beyond which campaigns that have no jobs are left out of all figures, so that what
	// these cost grows with what has jobs.
	maxIdle = 10_000
	// livelyFor is for how long a campaign has figures after its last job.
	livelyFor = 10 * time.Minute
)

// listed returns the campaigns to look at, and of these the busy ones: those that have jobs, or just had some.
func (t *Tracker) listed(b *Board) (listed, busy map[string]*delivery.Campaign) {
	busy = t.busy(b)
	if len(t.snapshot.Campaigns) <= maxIdle {
		return t.snapshot.Campaigns, busy
	}
	listed = maps.Clone(t.watched)
	maps.Copy(listed, busy)
	return listed, busy
}

func (t *Tracker) busy(b *Board) map[string]*delivery.Campaign {
	list := map[string]*delivery.Campaign{}
	add := func(hash uint64) {
		if c := t.byHash[hash]; c != nil {
			list[c.ID] = c
		}
	}
	for hash := range b.totals {
		add(hash)
	}
	for hash := range b.sent {
		add(hash)
	}
	for hash := range b.stuck {
		add(hash)
	}
	return list
}
