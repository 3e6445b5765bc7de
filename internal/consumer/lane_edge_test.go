package consumer

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/delivery"
)

// TestACappedCampaignIsReadAgainAfterARelease: a campaign that is left behind because it has maxSlots gives its open jobs back (it was paused). Nothing of it is
// open then, so no settle ever lifts the cap, and Room and probe pass over it: it is not read any more.
func TestACappedCampaignIsReadAgainAfterARelease(t *testing.T) {
	l := newLane(lanePositions{})
	h := campaignHash("c")
	for o := range int64(maxSlots + 10) {
		if l.meet(h, o) == take {
			l.add(h, "c", laneSlot{offset: o, size: 1, weight: 1})
		}
	}
	for o := int64(1); o < maxSlots; o++ {
		l.settle(o)
	}
	c := l.campaigns[h]
	if !c.capped || len(c.slots) != maxSlots || c.units != 1 {
		t.Fatalf("capped %v, %d slots, %d units", c.capped, len(c.slots), c.units)
	}
	l.giveBack(0) // the only open job, which waited for its retry, is given back: the campaign is paused
	granted := l.grantRoom(h, 1000)
	l.probe()
	if _, _, ok := l.candidate(); !ok {
		t.Errorf("the campaign was granted room (%v) and probed, and is not read: capped %v, %d open", granted, c.capped, len(l.at))
	}
	// The same wedge one step later: even with room, the cap is looked at before what is tracked already.
	c.capped, c.room = false, 1000
	for round := range 5 {
		from, _, ok := l.candidate()
		if !ok {
			t.Fatalf("round %d: no candidate though nothing is open: next %d, main %d, %d slots, capped %v", round, c.next, l.main, len(c.slots), c.capped)
		}
		l.beginCatchUp(from)
		var got []int64
		for o := from; o < l.main; o++ {
			if l.revisit(h, o) == take {
				l.add(h, "c", laneSlot{offset: o, size: 1, weight: 1})
				got = append(got, o)
			}
		}
		l.endCatchUp(l.main, 1000)
		for _, o := range got {
			l.settle(o)
		}
		if l.committed() == l.main {
			return
		}
		l.grantRoom(h, 1000)
	}
	t.Errorf("not drained: committed %d of %d", l.committed(), l.main)
}

// TestABrokenCatchUpGoesOn: a catch-up read that fails after it has used up the room (a fetch error between two batches): nothing was
// refused, so nobody owes word of room.
func TestABrokenCatchUpGoesOn(t *testing.T) {
	l := newLane(lanePositions{})
	h := campaignHash("c")
	for o := range int64(20) {
		if l.meet(h, o) == take {
			l.add(h, "c", laneSlot{offset: o, size: 1, weight: 1})
		}
	}
	for o := range int64(20) {
		l.giveBack(o)
	}
	l.grantRoom(h, 4)
	from, _, _ := l.candidate()
	l.beginCatchUp(from)
	for o := range int64(4) {
		if l.revisit(h, o) == take {
			l.add(h, "c", laneSlot{offset: o, size: 1, weight: 1})
		}
	}
	l.breakCatchUp() // the fetch fails here
	for o := range int64(4) {
		l.settle(o)
	}
	if _, _, ok := l.candidate(); !ok {
		t.Error("everything handed over was settled, nothing was refused, and nothing is read until the next probe")
	}
}

// brokenBytes is a value that cannot be read.
type brokenBytes struct{ protocol.Bytes }

var errBroken = errors.New("broken")

func (brokenBytes) Read([]byte) (int, error) { return 0, errBroken }
func (brokenBytes) Len() int                 { return 1 }

// TestAnUnreadableRecordIsNotPassedOver: a record whose turn it is, and that cannot be copied, is met again by the next
// read: neither the main position nor that of a campaign that was left behind moves past it.
func TestAnUnreadableRecordIsNotPassedOver(t *testing.T) {
	b := newBudget(1 << 20)
	m, err := newMetrics(newRegistry(), b)
	if err != nil {
		t.Fatal(err)
	}
	src := newLaneSource(partition{"lanes", 0}, newLane(lanePositions{}), b, m, func() {})
	d := &shared{budget: b, metrics: m, log: slog.New(slog.DiscardHandler), maxWeight: 1}
	r := &laneReader{shared: d, src: src, repeats: newRepeats(newOriginTopics())}
	record := func(offset int64, value protocol.Bytes) *protocol.Record {
		headers := []kafka.Header{{Key: delivery.HeaderCampaign, Value: []byte("c")}}
		return &protocol.Record{Offset: offset, Value: value, Headers: headers}
	}
	main := &pick{reader: r, now: time.Now(), verdict: (*lane).meet}
	catchUp := &pick{reader: r, now: time.Now(), verdict: (*lane).revisit, catchUp: true}
	whole := func() protocol.Bytes { return protocol.NewBytes([]byte("{}")) }

	if err := main.visit(record(0, brokenBytes{})); !errors.Is(err, errBroken) {
		t.Fatalf("error %v", err)
	}
	if src.lane.main != 0 || src.lane.committed() != 0 {
		t.Fatalf("main is %d past a record that was not read, %d is committed", src.lane.main, src.lane.committed())
	}
	if err := main.visit(record(0, whole())); err != nil || len(main.jobs) != 1 || src.lane.main != 1 {
		t.Fatalf("read again: %d jobs, main %d, %v", len(main.jobs), src.lane.main, err)
	}

	src.withheld(0)
	src.lane.grantRoom(campaignHash("c"), 5)
	src.lane.beginCatchUp(0)
	if err := catchUp.visit(record(0, brokenBytes{})); !errors.Is(err, errBroken) {
		t.Fatalf("error %v", err)
	}
	src.lane.breakCatchUp()
	if at := src.lane.committed(); at != 0 {
		t.Fatalf("%d is committed past a record that was left behind and not read", at)
	}
	src.lane.beginCatchUp(0)
	if err := catchUp.visit(record(0, whole())); err != nil || len(catchUp.jobs) != 1 {
		t.Fatalf("read again: %d jobs, %v", len(catchUp.jobs), err)
	}
	src.lane.endCatchUp(1, 100)
	src.Settle(0, delivery.OutcomeDelivered)
	if at := src.lane.committed(); at != 1 {
		t.Errorf("%d is committed of 1", at)
	}
}
