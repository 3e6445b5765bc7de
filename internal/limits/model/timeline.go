package model

import (
	"hash/fnv"

	"github.com/pacer/pacer/internal/delivery"
)

// timeline is the slots of one campaign.
type timeline struct {
	next  delivery.Slot // the first slot not granted yet
	rate  delivery.Rate
	rev   int64
	burst int64
	// last is the latest granted slot that is still out (rounded up, so that a new rate starts late rather than
	// early), high the latest ever granted: a refund lowers last, not high. 0: nothing was granted yet.
	last, high int64
	nodes      []*node // in the order in which they came
}

// node is a daemon that asked lately.
type node struct {
	id     string
	seen   int64 // its last ask
	cut    int64 // its last ask, if that was cut short for want of slots, else 0
	due    int64 // when it was told to come back, if its last ask was cut short by a quota, else 0
	served int64 // units granted, comparable between nodes only
}

// awaited tells whether the node is about to come for units of a quota.
func (n *node) awaited(now, grace int64) bool {
	return n.due > 0 && n.due-second <= now && now <= n.due+grace
}

// Phase puts the first slot of a new timeline off, so that thousands of campaigns started together do not fire in
// the same instant.
func Phase(campaign string, r delivery.Rate) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(campaign))
	if r.Zero() {
		return 0
	}
	return int64(h.Sum32()) % min(r.Spacing(), maxPhase)
}

// firstSlot is where a timeline begins that may begin at from: at the campaign's phase on a grid that all share, so that
// campaigns of one rate stay evenly spread whenever each began.
func firstSlot(from int64, c *delivery.Campaign) int64 {
	if c.Rate.Zero() {
		return from
	}
	grid := min(c.Rate.Spacing(), maxPhase)
	return from + ((Phase(c.ID, c.Rate)-from)%grid+grid)%grid
}

// timeline returns the campaign's timeline, brought to the ask's revision if that is newer.
func (s *Store) timeline(now int64, c *delivery.Campaign) *timeline {
	tl := s.timelines[c.ID]
	switch {
	case tl == nil:
		tl = &timeline{rate: c.Rate, rev: c.Revision, burst: c.Burst, next: delivery.Slot{At: firstSlot(now, c)}}
		s.timelines[c.ID] = tl
	case c.Revision > tl.rev:
		changed := tl.rate != c.Rate
		tl.rev, tl.rate, tl.burst = c.Revision, c.Rate, c.Burst
		if !changed || c.Rate.Zero() {
			break
		}
		tl.next = delivery.Slot{At: max(now, tl.last+c.Rate.Spacing())}
		if tl.last == 0 {
			tl.next = delivery.Slot{At: firstSlot(now, c)}
		}
	}
	return tl
}

// catchUp moves the timeline past what a daemon holds, should the store have lost it in a fail-over, and past time
// that went by unused, but for the burst. A slow campaign that has not idled (its slot has only just passed and it has more
// than one unit to send, or somebody wanted slots of it all the while) goes on as it was where that leaves most of the late
// tolerance, and else begins anew with its phase: whatever kept it from its slots kept others, too, and they should not
// all go on in the same instant.
func (tl *timeline) catchUp(now int64, a *delivery.Ask) {
	spacing, heldUntil := tl.rate.Spacing(), a.HeldUntil
	if heldUntil > tl.high {
		tl.high, tl.last = heldUntil, max(tl.last, heldUntil)
		if tl.next.Micros() < heldUntil+spacing {
			tl.next = delivery.Slot{At: heldUntil + spacing}
		}
	}
	floor := now - tl.credit()
	if tl.next.At >= floor {
		return
	}
	if spacing >= sparse && (a.Want > 1 && tl.next.At+min(spacing, maxPhase) >= floor || tl.wanted(now)) {
		if tl.next.At >= floor-delivery.Kept(a.LateTolerance) {
			return
		}
		floor = firstSlot(floor, a.Campaign)
	}
	tl.next = delivery.Slot{At: floor}
}

// wanted tells whether somebody was cut short for want of slots lately.
func (tl *timeline) wanted(now int64) bool {
	for _, n := range tl.nodes {
		if n.cut > 0 && now-n.cut <= wantedFor {
			return true
		}
	}
	return false
}

// credit is how far back unused slots may be used: the time of burst slots, rounded down.
func (tl *timeline) credit() int64 {
	burst := min(tl.burst, delivery.MaxGrant, maxCredit/tl.rate.Spacing())
	if burst <= 0 {
		return 0
	}
	return delivery.Slot{}.Advance(burst, tl.rate).At
}

// grant moves the timeline past units slots from start on.
func (tl *timeline) grant(start delivery.Slot, units int64) {
	tl.last = start.Advance(units-1, tl.rate).Micros()
	tl.high = max(tl.high, tl.last)
	tl.next = start.Advance(units, tl.rate)
}

// refund frees slots that are still the last ones granted.
func (tl *timeline) refund(g delivery.Grant) {
	if g.Revision != tl.rev || g.Rate != tl.rate || tl.rate.Zero() || g.Units > delivery.MaxGrant {
		return
	}
	if g.First.Advance(g.Units, tl.rate) != tl.next {
		return
	}
	tl.next = g.First
	tl.last = g.First.Micros() - tl.rate.Per/tl.rate.N
}

// fresh is for how long a daemon that was cut short counts as competing.
func (tl *timeline) fresh() int64 { return max(second, 2*tl.rate.Spacing()) }

// join finds the daemon among the nodes, forgetting those that have not asked for long, and places a new one at
// the end. grace is how late a daemon may be for an appointment.
func (tl *timeline) join(now int64, id string, grace int64) *node {
	var self *node
	kept := tl.nodes[:0]
	for _, n := range tl.nodes {
		if n.id == id {
			self = n
		} else if now-n.seen > tl.fresh() && now > n.due+grace {
			continue
		}
		kept = append(kept, n)
	}
	tl.nodes = kept
	if self != nil {
		return self
	}
	if len(tl.nodes) >= maxNodes {
		oldest := 0
		for i, n := range tl.nodes {
			if n.seen < tl.nodes[oldest].seen {
				oldest = i
			}
		}
		tl.nodes = append(tl.nodes[:oldest], tl.nodes[oldest+1:]...)
	}
	self = &node{id: id, served: -1}
	tl.nodes = append(tl.nodes, self)
	return self
}
