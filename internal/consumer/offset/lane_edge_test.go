package offset

import (
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestACappedCampaignIsReadAgainAfterARelease: a campaign that is left behind because it has maxHandedOver gives its open jobs back (it was paused). Nothing of it is
// open then, so no settle ever lifts the cap, and Room and probe pass over it: it is not read any more.
func TestACappedCampaignIsReadAgainAfterARelease(t *testing.T) {
	l := NewLane(0)
	h := delivery.CampaignHash("c")
	for o := range int64(maxHandedOver + 10) {
		if l.ClassifyMain(h, o) == HandOver {
			l.Add(h, Record{Offset: o, Size: 1, Weight: 1})
		}
	}
	for o := int64(1); o < maxHandedOver; o++ {
		l.Settle(o)
	}
	c := l.campaigns[h]
	if c.capped = true; c.units != 1 || len(c.records) > 2*minSettles {
		t.Fatalf("%d records are kept, %d units", len(c.records), c.units)
	}
	l.GiveBack(0) // the only open job, which waited for its retry, is given back: the campaign is paused
	granted := l.GrantCapacity(h, 1000)
	l.Probe()
	if _, _, ok := l.Candidate(); !ok {
		t.Errorf("the campaign was granted room (%v) and probed, and is not read: capped %v, %d open", granted, c.capped, len(l.at))
	}
	// The same wedge one step later: even with room, the cap is looked at before what is tracked already.
	c.capped, c.capacity = false, 1000
	for round := range 5 {
		from, _, ok := l.Candidate()
		if !ok {
			t.Fatalf("round %d: no candidate though nothing is open: next %d, main %d, %d slots, capped %v", round, c.next, l.main, len(c.records), c.capped)
		}
		l.BeginCatchUp(from)
		var got []int64
		for o := from; o < l.main; o++ {
			if l.ClassifyCatchUp(h, o) == HandOver {
				l.Add(h, Record{Offset: o, Size: 1, Weight: 1})
				got = append(got, o)
			}
		}
		l.EndCatchUp(l.main, 1000)
		for _, o := range got {
			l.Settle(o)
		}
		if l.Committed() == l.main {
			return
		}
		l.GrantCapacity(h, 1000)
	}
	t.Errorf("not drained: committed %d of %d", l.Committed(), l.main)
}

// TestABrokenCatchUpGoesOn: a catch-up read that fails after it has used up the room (a fetch error between two batches): nothing was
// refused, so no call of Room is expected.
func TestABrokenCatchUpGoesOn(t *testing.T) {
	l := NewLane(0)
	h := delivery.CampaignHash("c")
	for o := range int64(20) {
		if l.ClassifyMain(h, o) == HandOver {
			l.Add(h, Record{Offset: o, Size: 1, Weight: 1})
		}
	}
	for o := range int64(20) {
		l.GiveBack(o)
	}
	l.GrantCapacity(h, 4)
	from, _, _ := l.Candidate()
	l.BeginCatchUp(from)
	for o := range int64(4) {
		if l.ClassifyCatchUp(h, o) == HandOver {
			l.Add(h, Record{Offset: o, Size: 1, Weight: 1})
		}
	}
	l.BreakCatchUp() // the fetch fails here
	for o := range int64(4) {
		l.Settle(o)
	}
	if _, _, ok := l.Candidate(); !ok {
		t.Error("everything handed over was settled, nothing was refused, and nothing is read until the next probe")
	}
}

// TestOnlyWhatHasNothingOpenIsTried: while a record of a campaign is open, its queue will report room. If that report is lost, the
// campaign is tried once it has nothing open, with a little of its last grant.
func TestOnlyWhatHasNothingOpenIsTried(t *testing.T) {
	l, h := NewLane(0), delivery.CampaignHash("c")
	for o := range int64(1000) {
		if l.ClassifyMain(h, o) == HandOver {
			l.Add(h, Record{Offset: o, Size: 1, Weight: 1})
		}
		if o == 1 {
			l.GiveBack(1) // refused
		}
	}
	l.Probe()
	if _, _, ok := l.Candidate(); ok {
		t.Error("tried while a record is open")
	}
	l.Settle(0)
	l.Probe()
	if from, _, ok := l.Candidate(); !ok || from != 1 || l.campaigns[h].capacity != 1 {
		t.Errorf("from %d, %v, room %d", from, ok, l.campaigns[h].capacity)
	}
}

// TestOneOpenRecordDoesNotEndALane: a job that stays open keeps the low of its campaign where it is, and others go on, with little
// memory, however long it does.
func TestOneOpenRecordDoesNotEndALane(t *testing.T) {
	l, h := NewLane(0), uint64(1)
	const records = 10 * maxHandedOver
	for o := range int64(records) {
		if l.ClassifyMain(h, o) != HandOver {
			t.Fatalf("record %d is left behind", o)
		}
		l.Add(h, Record{Offset: o, Weight: 1, Size: 1})
		if o > 0 {
			l.Settle(o)
		}
	}
	if c := l.campaigns[h]; l.Open() != 1 || len(c.records) > 2*minSettles {
		t.Errorf("%d are open, %d are kept", l.Open(), len(c.records))
	}
	if p := l.Position(); p.Offset != 0 || p.Trimmed || len(p.Metadata) > 50 {
		t.Errorf("committed as %+v", p)
	}
}

// TestWhatWasSettledBeforeTwoRestartsStaysSettled: a campaign is read again up to a record that is settled, and nothing else holds the
// commit. The next owner does not hand that record over.
func TestWhatWasSettledBeforeTwoRestartsStaysSettled(t *testing.T) {
	a, b := delivery.CampaignHash("a"), delivery.CampaignHash("b")
	log := []uint64{b, a, a, a} // of which the third is settled, and the last is not read until then
	l := NewLane(0)
	for o, hash := range log {
		l.ClassifyMain(hash, int64(o))
		l.Add(hash, Record{Offset: int64(o), Size: 1, Weight: 1})
	}
	l.Settle(2)
	again := func(to int64) (got []int64) {
		p := l.Position()
		next, err := RestoreLane(p.Offset, p.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		l = next
		from, _, _ := l.Candidate()
		l.BeginCatchUp(from)
		for o := from; o < to; o++ {
			if l.ClassifyCatchUp(log[o], o) == HandOver {
				l.Add(log[o], Record{Offset: o, Size: 1, Weight: 1})
				got = append(got, o)
			}
		}
		l.EndCatchUp(to, 100)
		return got
	}
	for _, o := range again(2) {
		l.Settle(o)
	}
	if got := again(4); len(got) != 1 || got[0] != 3 {
		t.Errorf("%v are handed over, want 3", got)
	}
}
