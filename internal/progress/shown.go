package progress

import (
	"iter"
	"maps"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Show says which campaigns have series of their own in the metrics.
type Show string

// The values of Show.
const (
	// ShowAll shows every campaign of a catalog of up to 10,000, and of a larger one those that have or had jobs, a fault
	// or an expected total.
	ShowAll Show = "all"
	// ShowActive shows every campaign of a catalog of up to 1,000, and of a larger one those that have or had jobs, at most 2,000 at
	// once. The backlog and the work of the others are added up as campaign (others).
	ShowActive Show = "active"
	// ShowNone shows no campaign; everything is added up as (others).
	ShowNone Show = "none"
)

// Others is the label of all campaigns without series of their own.
const Others = "(others)"

const (
	// maxIdle is the size of the catalog beyond which campaigns that have no jobs are left out of all figures, so that what
	// these cost grows with what has jobs.
	maxIdle = 10_000
	// livelyFor is for how long a campaign has figures after its last job.
	livelyFor = 10 * time.Minute
	// maxInactive is the largest catalog that ShowActive shows whole, and maxActive is how many campaigns it shows of a larger one. 2,000
	// campaigns are about 1.5 MB of a scrape.
	maxInactive = 1000
	maxActive   = 2000
)

// everything reports whether all campaigns of the catalog have series of their own.
func (t *Tracker) everything() bool {
	most := maxIdle
	switch t.opt.Show {
	case ShowNone:
		most = 0
	case ShowActive:
		most = maxInactive
	}
	return len(t.snapshot.Campaigns) <= most
}

// markActive notes which campaigns are looked at and which have jobs.
func (t *Tracker) markActive(listed, busy map[string]*delivery.Campaign, now time.Time) {
	if t.everything() || t.opt.Show == ShowNone {
		clear(t.lively)
		return
	}
	maps.DeleteFunc(t.lively, func(id string, at time.Time) bool {
		return now.Sub(at) > livelyFor || t.snapshot.Campaigns[id] == nil
	})
	if t.opt.Show != ShowActive {
		busy = listed
	}
	for id := range busy {
		if _, known := t.lively[id]; known || t.opt.Show != ShowActive || len(t.lively) < maxActive {
			t.lively[id] = now
		}
	}
}

// shown returns the campaigns that have series of their own.
func (t *Tracker) shown() map[string]*delivery.Campaign {
	if t.everything() {
		return t.snapshot.Campaigns
	}
	list := make(map[string]*delivery.Campaign, len(t.lively))
	for id := range t.lively {
		if c := t.snapshot.Campaigns[id]; c != nil {
			list[id] = c
		}
	}
	return list
}

// Shows reports whether the campaign has series of its own in the metrics, as of the last exchange. It may be called from any
// goroutine.
func (t *Tracker) Shows(campaign string) bool {
	if t.opt.Show == ShowNone {
		return false
	}
	if shown := t.showing.Load(); shown != nil {
		return (*shown)[campaign] != nil
	}
	return true
}

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
		t.merger.forget(known)
		maps.DeleteFunc(t.sent, func(campaign uint64, _ int64) bool { return !known(campaign) })
	}
}

// matters reports whether there is something to find out about a campaign although it has no jobs.
func (t *Tracker) matters(c *delivery.Campaign) bool {
	_, sink := t.opt.Sink(c.Sink)
	return !sink || c.Invalid != "" || c.ExpectedTotal > 0 || !c.FinishBy.IsZero()
}

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
	for _, hashes := range []iter.Seq[uint64]{maps.Keys(b.totals), maps.Keys(b.Tallies), maps.Keys(b.Stuck)} {
		for hash := range hashes {
			if c := t.byHash[hash]; c != nil {
				list[c.ID] = c
			}
		}
	}
	return list
}
