package pacer

import (
	"context"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// timeline is one daemon's part of a campaign's timeline: the slots that it was granted and has not used. Slots are used in order. A job
// of weight w uses the next w and goes at the first of them. That keeps the bound even if other jobs are in front than when the slots
// were asked for. But no job begins at a slot that was granted as part of a heavy job: it may lie long after the windows of quotas have
// lost what was granted (see delivery.Grant.BeginBy). Slots are handed back when the first of them is such a one. It is pure, and all its
// times are store times in microseconds.
type timeline struct {
	grants   []delivery.Grant // in order; First advances as slots are used
	granted  int64            // sum of Units of grants
	lastSlot int64            // the last slot used or given up
	shard    int              // of the store, that of the latest grant
	early    int64            // how far in the past a granted slot may lie without being credit
}

// lastGranted is the store time of the latest slot this daemon was granted and has not given back, 0 for none.
func (t *timeline) lastGranted() int64 {
	if n := len(t.grants); n > 0 {
		g := t.grants[n-1]
		return g.First.Advance(g.Units-1, g.Rate).Micros()
	}
	return t.lastSlot
}

// add adds granted slots. They may lie before those that are there: in a hole of the campaign's timeline.
func (t *timeline) add(g delivery.Grant) {
	if g.Units > 0 {
		i := len(t.grants)
		for i > 0 && g.First.At < t.grants[i-1].First.At {
			i--
		}
		t.grants = slices.Insert(t.grants, i, g)
		t.granted += g.Units
		if t.shard != g.From.Shard {
			t.shard, t.lastSlot = g.From.Shard, 0 // which was on another clock
		}
	}
}

// due is the store time of the first slot; there must be one. The credit of a burst lies in the past and is due when it was granted, or
// just before: slots may be granted a little late.
func (t *timeline) due() int64 { return t.slot(0) }

// slot is when the slot after the first n is due; there must be one.
func (t *timeline) slot(n int64) int64 {
	i := 0
	for ; n >= t.grants[i].Units; i++ {
		n -= t.grants[i].Units
	}
	g := &t.grants[i]
	return max(g.First.Advance(n, g.Rate).Micros(), g.GrantedAt-t.early)
}

// farApart is the spacing of slots, in microseconds, from which on those that are not used can be handed back to the timeline: the next one would
// be far off.
const farApart = 1_000_000

// use removes the next n slots, which must be there. It returns them as counted by quotas. Those that are not far apart have no rate: they can be
// handed back to the quotas, but not to the timeline.
func (t *timeline) use(n int64) (counted []delivery.Grant) {
	for n > 0 {
		g := &t.grants[0]
		k := min(n, g.Units)
		if c := g.From.Campaign; c != nil && len(c.Quotas) > 0 {
			part := delivery.Grant{Units: k, GrantedAt: g.GrantedAt, Revision: g.Revision, From: g.From}
			if g.Rate.Spacing() >= farApart {
				part.First, part.Rate = g.First, g.Rate
			}
			counted = append(counted, part)
		}
		t.lastSlot = g.First.Advance(k-1, g.Rate).Micros()
		g.First = g.First.Advance(k, g.Rate)
		g.Units -= k
		t.granted -= k
		n -= k
		if g.Units == 0 {
			t.grants = slices.Delete(t.grants, 0, 1) // there are two or three: their memory is worth keeping
		}
	}
	return counted
}

// handBack forgets the latest slot, which is handed back.
func (t *timeline) handBack(part *delivery.Grant) {
	if spacing := part.Rate.Spacing(); spacing >= farApart && part.First.Advance(part.Units-1, part.Rate).Micros() == t.lastSlot {
		t.lastSlot = part.First.Micros() - spacing
	}
}

// withdraw gives up all slots but those of a revision or a later one, and returns them for a refund, with their sum.
func (t *timeline) withdraw(from int64) (back []delivery.Grant, units int64) {
	kept := t.grants[:0:0]
	for _, g := range t.grants {
		if g.Revision >= from {
			kept = append(kept, g)
		} else {
			back, units = append(back, g), units+g.Units
		}
	}
	t.grants, t.granted = kept, t.granted-units
	slices.Reverse(back) // from the end of the timeline, so that each is its end in turn
	return back, units
}

// tooLate is how many of the first grant's slots, which must be there, lie not after late; those of a grant that was made
// after it are credit, and are not late.
func (t *timeline) tooLate(late int64) int64 {
	g := &t.grants[0]
	if g.GrantedAt > late {
		return 0
	}
	return g.First.CountUntil(late, g.Rate, g.Units)
}

// maxUnsent bounds the records of units that were not sent; a round of maintenance hands them back.
const maxUnsent = 4096

// unsent are units whose slots have passed without a job being sent. The slots are lost, but the windows of the
// quotas get the units back: a stalled machine should not use up a month's quota.
type unsent []delivery.Grant

func (u *unsent) add(parts []delivery.Grant) {
	for _, part := range parts {
		if n := len(*u); n > 0 && part.Rate.Zero() && (*u)[n-1].GrantedAt == part.GrantedAt && (*u)[n-1].From == part.From { // of one ask
			(*u)[n-1].Units += part.Units
		} else if n < maxUnsent {
			*u = append(*u, part)
		}
	}
}

// returnUnsent hands back the units that were not sent since the last call, and slots that are far apart. Where a quota gets them, which may have
// been used up by them, their queues ask again once it has.
func (sl *slots) returnUnsent() {
	if len(sl.unsent) == 0 {
		return
	}
	parts := sl.unsent
	sl.unsent = nil
	for i := range parts {
		if q := sl.queues.byID[parts[i].From.Campaign.ID]; q != nil {
			q.handBack(&parts[i])
		}
	}
	sl.background(func(ctx context.Context) {
		if err := sl.opt.Limiter.Refund(ctx, parts); err != nil {
			sl.opt.Logger.Debug("units that were not sent count as if they were", "error", err)
			return
		}
		sl.inbox.do(func(now instant) {
			for _, part := range parts {
				if q := sl.queues.byID[part.From.Campaign.ID]; q != nil {
					sl.takes.askLater(q, now.local)
				}
			}
		})
	})
}
