package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// inForce is a campaign of the catalog as its schedule has it now.
type inForce struct {
	row      *delivery.Campaign // as the catalog has it
	campaign *delivery.Campaign // at the rate and the revision in force; what queues hold and asks name
	next     time.Time          // by the wall clock, when the schedule has to be looked at again; zero: never
	index    int                // in the change heap, -1 when not there
	observe  func(*delivery.Job, delivery.Outcome)
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
		f = &inForce{index: -1, observe: p.metrics.observer(id)}
		p.inForce[id] = f
		delete(p.gone, id)
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
	if f.next.IsZero() {
		p.changes.remove(f)
	} else {
		p.changes.set(f, f.next.UnixMicro())
	}
}

func (p *Pacer) forget(id string, f *inForce) {
	delete(p.inForce, id)
	p.changes.remove(f)
	p.gone[id] = p.now()
}

// countsKeptFor is how long the counts of a campaign are kept after its row was deleted: until they have been scraped, and
// its jobs in flight are settled.
const countsKeptFor = 10 * time.Minute

// dropCounts forgets the counts of campaigns that were deleted long ago.
func (p *Pacer) dropCounts(now int64) {
	for id, since := range p.gone {
		switch {
		case p.snapshot.Campaign(id) != nil: // it was created anew
			delete(p.gone, id)
		case now-since > countsKeptFor.Microseconds():
			delete(p.gone, id)
			p.metrics.forget(id)
		}
	}
}

// maxChanges bounds the schedules that act in one turn: thousands may change with the same minute, and slots come due
// in between.
const maxChanges = 256

// follow lets the schedules act whose time has come: steps of ramps, hours that begin and end, starts and ends.
func (p *Pacer) follow() {
	if p.changes.len() == 0 {
		return
	}
	now := time.Now()
	for range maxChanges {
		if p.changes.len() == 0 || p.changes.first().item.next.After(now) {
			return
		}
		f := p.changes.first().item
		p.look(f, now)
		if q := p.queues[f.row.ID]; q != nil {
			p.change(q, now)
		}
	}
}

// nextChange is the local time at which a schedule is next to be looked at.
func (p *Pacer) nextChange() int64 {
	return p.now() + time.Until(p.changes.first().item.next).Microseconds() + 1 // not a moment before it
}
