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
		forget(t.sent, known)
		t.merger.sent.forget(known)
	}
	if t.merger.denied.seen != nil { // this daemon leads
		t.merger.denied.forget(windowsOf(s))
	}
}

// windowsOf returns what knows the windows of the catalog's quotas by their hashes.
func windowsOf(s *delivery.Snapshot) func(hash uint64) bool {
	windows := map[uint64]bool{}
	for id, q := range s.Quotas {
		for _, w := range q.Windows {
			windows[windowHash(id, w.Span)] = true
		}
	}
	return func(hash uint64) bool { return windows[hash] }
}

// matters reports whether there is something to find out about a campaign although it has no jobs.
func (t *Tracker) matters(c *delivery.Campaign) bool {
	_, sink := t.opt.Sink(c.Sink)
	return !sink || c.Invalid != "" || c.ExpectedTotal > 0
}

const (
	// maxIdle is the size of the catalog beyond which campaigns that have no jobs are left out of all figures, so that what
	// these cost grows with what has jobs.
	maxIdle = 10_000
	// livelyFor is for how long a campaign has figures after its last job.
	livelyFor = 10 * time.Minute
)

// listed returns the campaigns to look at, and of these the busy ones: those that have jobs, or just had some.
func (t *Tracker) listed(b *Board, sent map[uint64]float64) (listed, busy map[string]*delivery.Campaign) {
	busy = t.busy(b, sent)
	if len(t.snapshot.Campaigns) <= maxIdle {
		return t.snapshot.Campaigns, busy
	}
	listed = maps.Clone(t.watched)
	maps.Copy(listed, busy)
	return listed, busy
}

func (t *Tracker) busy(b *Board, sent map[uint64]float64) map[string]*delivery.Campaign {
	list := map[string]*delivery.Campaign{}
	add := func(hash uint64) {
		if c := t.byHash[hash]; c != nil {
			list[c.ID] = c
		}
	}
	for hash := range b.totals {
		add(hash)
	}
	for hash := range sent {
		add(hash)
	}
	for hash := range b.stuck {
		add(hash)
	}
	return list
}

// InLanes returns how many jobs of a campaign wait in lanes, and how many campaigns have large and huge backlogs there, as of the last
// exchange. It may be called from any goroutine.
func (t *Tracker) InLanes(campaign string) (jobs int64, large, huge int) {
	if last := t.inLanes.Load(); last != nil {
		return last.of[delivery.CampaignHash(campaign)], last.large, last.huge
	}
	return 0, 0, 0
}

// inLanes are the jobs that wait in lanes, by campaign.
type inLanes struct {
	of          map[uint64]int64
	large, huge int
}

func (p *part) inLanes() *inLanes {
	n := &inLanes{of: map[uint64]int64{}}
	for _, l := range p.Lanes.Lanes {
		for _, w := range l.Waiting {
			n.of[w.Campaign] += w.Jobs
		}
	}
	for _, jobs := range n.of {
		if jobs >= delivery.LargeBacklog {
			n.large++
		}
		if jobs >= delivery.HugeBacklog {
			n.huge++
		}
	}
	return n
}
