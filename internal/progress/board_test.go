package progress

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// TestWaitingByLane: what waits in each lane of a campaign with several is known, also that it is nothing; of lanes that
// nobody reads, and of other campaigns, it is not.
func TestWaitingByLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wide, narrow := campaign("wide", 1000, 0), campaign("narrow", 10, 0)
		wide.Lanes, narrow.Lanes = []int{3, 4, 5, 6}, []int{3}
		m, _ := alone(catalogOf(wide, narrow))
		if m.Waiting("wide") != nil {
			t.Error("something waits before the first exchange")
		}
		m.lane(1, 3, "wide", 50)
		m.lane(1, 4, "wide", 70)
		m.lane(1, 6, "narrow", 20)
		m.exchange(t.Context())
		if got := m.Waiting("wide"); !maps.Equal(got, map[int]int64{3: 50, 4: 70, 6: 0}) {
			t.Errorf("waiting %v", got)
		}
		if got := m.Waiting("narrow"); got != nil {
			t.Errorf("waiting %v of a campaign with one lane", got)
		}
	})
}

// TestABoardKnowsWhatKeepsALane: lanes that their daemon does not read, and jobs that sinks have in hand, as long as it runs.
func TestABoardKnowsWhatKeepsALane(t *testing.T) {
	c := &delivery.Campaign{ID: "c", Lanes: []int{3}}
	for age, want := range map[time.Duration]bool{0: true, freshFor: false} {
		p := &part{lanes: delivery.LanesBacklog{Unreadable: []int{3}}, inHand: []sent{{delivery.CampaignHash("c"), 2}}}
		b := newBoard(time.Now(), (&merger{}).merge([]reported{{part: p, daemon: "a", age: age}})).Of(c, nil)
		if (len(b.Unread) == 1) != want || (b.InHand == 2) != want {
			t.Errorf("%s old: %+v", age, b)
		}
	}
}

// TestKafkaAnswersNone: campaigns are held by that, since it answers none of the daemons any more, and only then.
func TestKafkaAnswersNone(t *testing.T) {
	now := time.UnixMicro(time.Now().UnixMicro())
	c := campaign("c", 10, 0)
	for name, tc := range map[string]struct {
		away []time.Time
		want time.Time
	}{
		"one":            {[]time.Time{now.Add(-time.Minute)}, now.Add(-time.Minute)},
		"one after one":  {[]time.Time{now.Add(-time.Minute), now.Add(-time.Second)}, now.Add(-time.Second)},
		"one of several": {[]time.Time{now.Add(-time.Minute), {}}, time.Time{}},
		"nobody tells":   {nil, time.Time{}},
	} {
		parts := []reported{{part: &part{}, daemon: "quiet"}}
		for i, away := range tc.away {
			node := Node{Name: string(rune('a' + i)), KafkaAway: away}
			p, err := decodePart((&part{nodes: []Node{node}}).encode())
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, reported{part: p, daemon: node.Name})
		}
		s, err := decodeSummary((&merger{}).merge(parts).encode())
		if err != nil {
			t.Fatal(err)
		}
		board := newBoard(now, s).Of(c, nil)
		if !board.Kafka.Equal(tc.want) {
			t.Errorf("%s: away since %s, want %s", name, board.Kafka, tc.want)
		}
		a := hold.Of(hold.Evidence{Now: now, Campaign: c, Board: board})
		if held := a.Cause == hold.Kafka; held == tc.want.IsZero() || held && !a.Since.Equal(tc.want) {
			t.Errorf("%s: %s since %s", name, a.Cause, a.Since)
		}
	}
}
