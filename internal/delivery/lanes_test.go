package delivery

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestOrderOfLanes: an order has each lane once, and any run of lanes in it is spread over the daemons, whether these read neighbours or
// every n-th lane.
func TestOrderOfLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lanes := rapid.IntRange(1, 600).Draw(t, "lanes")
		order, seen := OrderOfLanes(rapid.String().Draw(t, "campaign"), lanes), map[int]bool{}
		for i := range lanes {
			seen[order.Lane(i)] = true
		}
		if len(seen) != lanes || order.Lane(lanes) != order.Lane(0) {
			t.Fatalf("%d of %d lanes", len(seen), lanes)
		}
	})
	for _, lanes := range []int{16, 64, 100, 256, 512} {
		for c := range 100 {
			order, blocks, turns := OrderOfLanes(fmt.Sprint("c", c), lanes), map[int]int{}, map[int]int{}
			for i := range 16 {
				lane := order.Lane(i)
				blocks[lane*4/lanes]++
				turns[lane%3]++
			}
			if lanes >= 64 && (len(blocks) < 4 || len(turns) < 3) {
				t.Errorf("%d lanes: 16 of them are read by %v and %v", lanes, blocks, turns)
			}
		}
	}
}

// TestLanesFillEvenly: each lane is the first one of as many numbered campaigns as another.
func TestLanesFillEvenly(t *testing.T) {
	for _, lanes := range []int{16, 64, 100, 256} {
		for _, id := range []string{"c%d", "tenant-%04d", "2026-%d"} {
			in := make([]int, lanes)
			for c := range 200 {
				in[OrderOfLanes(fmt.Sprintf(id, c), lanes).Lane(0)]++
			}
			if least, most := slices.Min(in), slices.Max(in); most > least+1 {
				t.Errorf("%s: of %d lanes, some are the first of %d campaigns and some of %d", id, lanes, least, most)
			}
		}
	}
}

func TestLanesFor(t *testing.T) {
	for _, c := range []struct {
		jobs               int64
		large, huge, lanes int
		first, end         int
	}{
		{0, 0, 0, 256, 0, 1},
		{511, 0, 0, 256, 0, 1},
		{512, 1, 0, 256, 1, 16},
		{8191, 1, 0, 256, 1, 16},
		{8192, 1, 1, 256, 0, 256},
		{300_000, 50, 4, 256, 0, 256},
		{300_000, 50, 5, 256, 1, 16},
		{300_000, 64, 100, 256, 1, 16},
		{300_000, 65, 100, 256, 0, 1},
		{10_000, 1, 1, 1, 0, 1},
		{1000, 1, 0, 4, 1, 4},
		{100_000, 1, 1, 4, 0, 4},
	} {
		if first, end := LanesFor(c.jobs, c.large, c.huge, c.lanes); first != c.first || end != c.end {
			t.Errorf("%d jobs, of %d large and %d huge backlogs over %d lanes: from %d to %d, want from %d to %d",
				c.jobs, c.large, c.huge, c.lanes, first, end, c.first, c.end)
		}
	}
}
