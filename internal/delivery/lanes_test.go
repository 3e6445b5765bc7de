package delivery

import (
	"fmt"
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

func TestLanesFor(t *testing.T) {
	for _, c := range []struct {
		jobs, all  int64
		lanes      int
		first, end int
	}{
		{0, 0, 256, 0, 1},
		{511, 511, 256, 0, 1},
		{512, 512, 256, 1, 16},
		{8191, 8191, 256, 1, 16},
		{8192, 8192, 256, 0, 256},
		{300_000, 300_000, 256, 0, 256},
		{300_000, 3_000_000, 64, 1, 16}, // one of ten
		{8_500, 1_700_000, 64, 0, 1},    // one of two hundred
		{150, 300_000, 64, 0, 1},
		{10_000, 10_000, 1, 0, 1},
		{1000, 1000, 4, 1, 4},
		{100_000, 100_000, 4, 1, 4},
		{100_000, 100_000, 32, 0, 32},
	} {
		if first, end := LanesFor(c.jobs, c.all, c.lanes); first != c.first || end != c.end {
			t.Errorf("%d jobs of %d over %d lanes: from %d to %d, want from %d to %d", c.jobs, c.all, c.lanes, first, end, c.first, c.end)
		}
	}
}

// TestALargeBacklogKeepsItsLanes: a campaign that has most of what waits lies in all lanes, however much that is.
func TestALargeBacklogKeepsItsLanes(t *testing.T) {
	for jobs := int64(lanesOfSome * lanePortion); jobs < 1e10; jobs += jobs / 7 {
		if first, end := LanesFor(jobs, jobs, 64); first != 0 || end != 64 {
			t.Fatalf("%d jobs lie in lanes %d to %d of their order", jobs, first, end)
		}
	}
}
