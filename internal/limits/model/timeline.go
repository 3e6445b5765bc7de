package model

import (
	"hash/fnv"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// timeline is the slots of one campaign.
type timeline struct {
	next  delivery.Slot // the first slot not granted yet
	rate  delivery.Rate
	rev   int64
	burst int64
	// last is the latest slot granted and not refunded (rounded up, so that a new rate starts late rather than
	// early), high the latest ever granted: a refund lowers last, not high. 0: nothing was granted yet.
	last, high int64
	rivals     rivals
	holes      holes
}

// Phase delays the first slot of a new timeline, so that thousands of campaigns started together do not send at
// the same instant.
func Phase(campaign string, r delivery.Rate) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(campaign))
	if r.Zero() {
		return 0
	}
	return int64(h.Sum32()) % min(r.Spacing(), maxPhase)
}

// firstSlot is the first slot at or after from of a new timeline: at the campaign's phase on a common grid, so that
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

// catchUp moves the timeline past the slots a daemon holds, in case the store lost them in a fail-over, and past unused time, except for
// the burst. A slow campaign that has not idled keeps its timeline if that leaves most of the late tolerance. It has not idled if its
// slot has only just passed and it has more than one unit to send. It has not idled either if a daemon wanted its slots all the time.
// Otherwise it starts again at its phase. The cause of the delay affected other campaigns too, and they should not all continue at the
// same instant. Where a quota was the cause, it starts again at once: at another instant, the units that were kept for it might be gone.
func (tl *timeline) catchUp(now int64, a *delivery.Ask) {
	spacing, heldUntil := tl.rate.Spacing(), a.LastGranted
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
		if tl.next.At >= floor-delivery.WireMargin(a.LateTolerance) {
			return
		}
		if !tl.refused(now, a) {
			floor = firstSlot(floor, a.Campaign)
		}
	}
	tl.next = delivery.Slot{At: floor}
}

// wanted reports whether a daemon was recently cut short for want of slots.
func (tl *timeline) wanted(now int64) bool {
	return slices.ContainsFunc(tl.rivals, func(r *rival) bool { return r.demand > 0 && now-r.seen <= wantedFor })
}

// refused reports whether a daemon was refused by a quota, and asks as it was told; or has answered for the store until now, since
// many wait.
func (tl *timeline) refused(now int64, a *delivery.Ask) bool {
	for i, j := range a.Joint {
		if j.Cost > 0 && len(a.Campaign.Quotas[i].Windows) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(tl.rivals, func(r *rival) bool { return r.awaited(now, 2*a.Quantum) })
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
func (tl *timeline) grant(hole int, start delivery.Slot, units int64) {
	last := start.Advance(units-1, tl.rate).Micros()
	if hole >= 0 {
		tl.holes[hole].before = last
		return
	}
	tl.last = last
	tl.high = max(tl.high, tl.last)
	tl.next = start.Advance(units, tl.rate)
}

// refund frees slots, of this revision or an earlier one: the timeline ends before them if they are the last ones, and has
// a hole otherwise.
func (tl *timeline) refund(now int64, g delivery.Grant) {
	if g.Rate.Zero() || tl.rate.Zero() || g.Units > delivery.MaxGrant {
		return
	}
	tl.holes.expire(now)
	h := hole{g.First.Back(g.Rate).Micros(), g.First.Advance(g.Units-1, g.Rate).Micros()}
	if h.last != tl.last {
		if h.last >= now && h.last < tl.last {
			tl.holes.add(h)
		}
		return
	}
	tl.last = h.before
	if joined := tl.holes.end(&tl.last); !joined && g.Revision == tl.rev && g.Rate == tl.rate {
		tl.next = g.First
	} else {
		tl.next = delivery.Slot{At: tl.last + tl.rate.Spacing()}
	}
}

// fresh is how long a daemon that was cut short counts as competing.
func (tl *timeline) fresh() int64 { return max(second, 2*tl.rate.Spacing()) }

// waiting is on how many daemons jobs wait, that of self included.
func (tl *timeline) waiting(self *rival) int64 {
	n := int64(1)
	for _, other := range tl.rivals {
		if other != self && other.demand+other.due > 0 {
			n++
		}
	}
	return n
}
