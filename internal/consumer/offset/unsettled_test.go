package offset

import (
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

func TestUnsettledOfIngress(t *testing.T) {
	metadata, _ := encodeSettled(10, []span{{12, 13}, {20, 20}})
	open, err := Unsettled(false, 10, metadata)
	if err != nil {
		t.Fatal(err)
	}
	for offset := int64(0); offset < 30; offset++ {
		want := offset >= 10 && offset != 12 && offset != 13 && offset != 20
		if got := open("any", offset); got != want {
			t.Errorf("offset %d open: %v", offset, got)
		}
	}
}

func TestUnsettledOfALane(t *testing.T) {
	committed, metadata, _ := encodeLane(lanePositions{main: 50, entries: []laneEntry{
		{hash: delivery.CampaignHash("slow"), low: 20, settledTo: 31},
	}, open: []int64{20, 21, 22, 24}})
	open, err := Unsettled(true, committed, metadata)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		campaign string
		offset   int64
		want     bool
	}{
		{"slow", 19, false}, {"slow", 20, true}, {"slow", 23, false}, {"slow", 24, true}, {"slow", 25, false}, {"slow", 30, false}, {"slow", 31, true},
		{"slow", 60, true}, {"fast", 20, false}, {"fast", 49, false}, {"fast", 50, true},
	} {
		if got := open(c.campaign, c.offset); got != c.want {
			t.Errorf("%s at %d open: %v", c.campaign, c.offset, got)
		}
	}
}

func TestUnsettledRefusesForeignMetadata(t *testing.T) {
	for _, lane := range []bool{false, true} {
		if _, err := Unsettled(lane, 10, "somebody else's"); err == nil {
			t.Errorf("lane %v: accepted", lane)
		}
	}
	open, err := Unsettled(true, 7, "")
	if err != nil || open("a", 6) || !open("a", 7) {
		t.Error("without metadata the committed offset alone counts")
	}
}
