package pacer

import (
	"container/heap"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// inForce is a campaign of the catalog as its schedule has it now.
type inForce struct {
	row      *delivery.Campaign // as the catalog has it
	campaign *delivery.Campaign // at the rate and the revision in force; what queues hold and asks name
	next     time.Time          // by the wall clock, when the schedule has to be looked at again; zero: never
	index    int                // in the change heap, -1 when not there
}

// campaign is the campaign with this id as its schedule has it now, nil while it is unknown. All but this file uses
// campaigns that were made here: their revisions cannot be compared with those of the catalog.
func (p *Pacer) campaign(id string) *delivery.Campaign {
	row, f := p.snapshot.Campaign(id), p.inForce[id]
	switch {
	case row == nil && f == nil:
		return nil
	case row == nil:
		p.forget(id, f)
		return nil
	case f == nil:
		f = &inForce{index: -1}
		p.inForce[id] = f
	}
	if f.row != row {
		f.row = row
		p.look(f, time.Now())
	}
	return f.campaign
}

// look brings f to now.
func (p *Pacer) look(f *inForce, now time.Time) {
	f.campaign, f.next = f.row.At(now), f.row.NextChange(now)
	switch {
	case f.next.IsZero() && f.index >= 0:
		heap.Remove(&p.changes, f.index)
	case f.next.IsZero():
	case f.index >= 0:
		heap.Fix(&p.changes, f.index)
	default:
		heap.Push(&p.changes, f)
	}
}

func (p *Pacer) forget(id string, f *inForce) {
	delete(p.inForce, id)
	if f.index >= 0 {
		heap.Remove(&p.changes, f.index)
	}
}

// maxChanges bounds the schedules that act in one turn: thousands may change with the same minute, and slots come due
// in between.
const maxChanges = 256

// follow lets the schedules act whose time has come: steps of ramps, hours that begin and end, starts and ends.
func (p *Pacer) follow() {
	if len(p.changes) == 0 {
		return
	}
	now := time.Now()
	for range maxChanges {
		if len(p.changes) == 0 || p.changes[0].next.After(now) {
			return
		}
		f := p.changes[0]
		p.look(f, now)
		if q := p.queues[f.row.ID]; q != nil {
			p.change(q, now)
		}
	}
}

// nextChange is the local time at which a schedule is next to be looked at.
func (p *Pacer) nextChange() int64 {
	return p.now() + time.Until(p.changes[0].next).Microseconds() + 1 // not a moment before it
}

// changeHeap orders campaigns by when their schedules change.
type changeHeap []*inForce

func (h changeHeap) Len() int           { return len(h) }
func (h changeHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h changeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *changeHeap) Push(x any) {
	f := x.(*inForce)
	f.index = len(*h)
	*h = append(*h, f)
}
func (h *changeHeap) Pop() any {
	old := *h
	f := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	f.index = -1
	return f
}
