package progress

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// TestABoardKnowsWhatKeepsALane: lanes that their daemon does not read, and jobs that sinks have in hand, as long as it runs.
func TestABoardKnowsWhatKeepsALane(t *testing.T) {
	c, first := &delivery.Campaign{ID: "c"}, delivery.OrderOfLanes("c", 8).Lane(0)
	for age, want := range map[time.Duration]bool{0: true, freshFor: false} {
		p := &part{Lanes: delivery.LanesBacklog{Lanes: []delivery.LaneBacklog{{Lane: 7}}, Unreadable: []int{first}}, Memory: map[uint64]memory{delivery.CampaignHash("c"): {InHand: 2}}}
		b := newBoard(time.Now(), (&merger{}).merge([]reported{{part: p, daemon: "a", age: age}})).Of(c)
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
			node := Daemon{Name: string(rune('a' + i)), KafkaAway: away}
			p, err := decodePart((&part{Nodes: []Daemon{node}}).encode())
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, reported{part: p, daemon: node.Name})
		}
		s, err := decodePart((&merger{}).merge(parts).encode())
		if err != nil {
			t.Fatal(err)
		}
		board := newBoard(now, s).Of(c)
		if !board.Kafka.Equal(tc.want) {
			t.Errorf("%s: away since %s, want %s", name, board.Kafka, tc.want)
		}
		a := hold.Of(hold.Evidence{Now: now, Campaign: c, Board: board})
		if held := a.Cause == hold.Kafka; held == tc.want.IsZero() || held && !a.Since.Equal(tc.want) {
			t.Errorf("%s: %s since %s", name, a.Cause, a.Since)
		}
	}
}
