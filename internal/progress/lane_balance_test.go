package progress

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

func TestSurplus(t *testing.T) {
	for _, c := range []struct {
		name    string
		waiting map[int]int64
		want    int64
	}{
		{"the only lane", map[int]int64{1: 1000}, 0},
		{"one of two has all", map[int]int64{1: 1000, 2: 0}, 250},
		{"one of four has all", map[int]int64{1: 1000, 2: 0, 3: 0, 4: 0}, 375},
		{"twice as much as the others", map[int]int64{1: 1000, 2: 500, 3: 500}, 0},
		{"three times as much", map[int]int64{1: 1500, 2: 500, 3: 500}, 333},
		{"less than the others", map[int]int64{1: 100, 2: 500, 3: 900}, 0},
		{"another one is narrow", map[int]int64{1: 100, 2: 0, 3: 9000}, 0},
		{"hardly anything", map[int]int64{1: 32, 2: 0}, 0},
		{"nothing", map[int]int64{1: 0, 2: 0}, 0},
		{"not counted", map[int]int64{2: 0, 3: 0}, 0},
	} {
		if got := surplus(c.waiting, 1, c.waiting[1]); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestSurplusLevelsLanes: whoever moves what is too much, from one lane after the other and with counts that are up to three
// rounds old, levels the lanes to about a factor of two in a few rounds, and then it ends. No lane falls below half of the mean by
// that.
func TestSurplusLevelsLanes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		start := rapid.SliceOfN(rapid.Int64Range(0, 1_000_000), 2, 32).Draw(rt, "jobs")
		lag := rapid.IntRange(0, 3).Draw(rt, "lag")
		counts := map[int]int64{}
		all := int64(0)
		for lane, n := range start {
			counts[lane], all = n, all+n
		}
		mean := all / int64(len(counts))
		before := []map[int]int64{}
		still := 0
		for round := 0; still <= lag; round++ {
			if round > 100 {
				rt.Fatalf("still moving after %d rounds: %v", round, counts)
			}
			now := map[int]int64{}
			for lane, n := range counts {
				now[lane] = n
			}
			before = append(before, now)
			known := before[max(0, len(before)-1-lag)]
			moved := int64(0)
			for lane := range start {
				n := surplus(known, lane, now[lane]) // the owner knows its own
				if n < 0 || n > now[lane] {
					rt.Fatalf("%d of %d are to be moved", n, now[lane])
				}
				if n > 0 && counts[lane]-n < mean/2-1 {
					rt.Fatalf("lane %d is left with %d of %d, the mean is %d", lane, counts[lane]-n, now[lane], mean)
				}
				moved += n
				counts[lane] -= n
				share := n / int64(len(counts)-1)
				for other := range counts {
					if other != lane {
						counts[other] += share
						n -= share
					}
				}
				counts[(lane+1)%len(start)] += n
			}
			if still++; moved > 0 {
				still = 0
			}
		}
		for lane := range start {
			if n := counts[lane]; n > 2*(all-n)/int64(len(start)-1)+leastSurplus+int64(len(start)) {
				rt.Fatalf("lane %d still has %d of %d in %d lanes", lane, n, all, len(start))
			}
		}
	})
}

// beside is an exchange with two daemons.
type beside struct {
	part []byte
	age  time.Duration
}

func (b *beside) Resign(context.Context, string) error { return nil }

func (b *beside) Swap(_ context.Context, daemon string, part []byte, sumUp func([]Left) []byte) (Summary, error) {
	return Summary{Leader: daemon, Summary: sumUp([]Left{{Daemon: daemon, Part: part}, {Daemon: "b", Part: b.part, Age: b.age}})}, nil
}

// TestNarrowLanes: a daemon is told of its own lanes only, if another daemon reads one of the campaign's, and of campaigns that
// need more lanes than they have.
func TestNarrowLanes(t *testing.T) {
	wide, few, slow := campaign("wide", 1000, 0), campaign("few", 1000, 0), campaign("slow", 10, 0)
	wide.Lanes, few.Lanes, slow.Lanes = []int{3, 4, 5}, []int{3}, []int{4}
	m, _ := alone(catalogOf(wide, few, slow))
	m.needs = map[string]int{"wide": 3, "few": 4}
	m.lane(1, 3, "wide", 3000)
	m.lanes.Lanes[0].Waiting = append(m.lanes.Lanes[0].Waiting, delivery.CampaignCount{Campaign: delivery.CampaignHash("few"), Jobs: 500})
	m.lane(1, 4, "slow", 700)
	tooFew := delivery.UnevenLane{Campaign: "few", Lane: 3, Few: true}
	expect := func(when string, want ...delivery.UnevenLane) {
		t.Helper()
		m.exchange(t.Context())
		if !slices.Equal(m.narrow, want) {
			t.Errorf("%s: %+v, want %+v", when, m.narrow, want)
		}
	}
	expect("there is no other daemon")
	other := &beside{part: (&part{lanes: delivery.LanesBacklog{Generation: 1, Lanes: []delivery.LaneBacklog{{Lane: 5}}}}).encode()}
	m.opt.Exchange = other
	mine := m.lanes.Lanes
	m.lanes.Lanes = append(slices.Clone(mine), delivery.LaneBacklog{Lane: 5})
	m.lanes.Generation = 2
	expect("the other one reads no lane", tooFew)
	m.lanes.Lanes, m.lanes.Generation = mine, 1
	expect("another one reads a lane", delivery.UnevenLane{Campaign: "wide", Lane: 3, Surplus: 1000}, tooFew)
	other.age = freshFor
	expect("that one has died, and its lanes are not taken over yet")
	b := newBoard(time.Now(), &summary{part: part{lanes: delivery.LanesBacklog{Lanes: append(slices.Clone(mine), delivery.LaneBacklog{Lane: 5})}}})
	if wide, few := b.Uneven("wide", wide.Lanes), b.Uneven("few", few.Lanes); !slices.Equal(wide, []int{3}) || few != nil {
		t.Errorf("uneven lanes %v and %v", wide, few)
	}
}
