package delivery

import (
	"strconv"
	"strings"
)

// LargeBacklog is how many jobs of a campaign have to wait for it to get several lanes.
const LargeBacklog = 512

// HugeBacklog is how many have to wait for it to get all lanes.
const HugeBacklog = someLanes * LargeBacklog

const (
	someLanes = 16
	// maxShared bounds how many large backlogs share a lane, on average, and maxHuge how many huge ones there are.
	maxShared, maxHuge = 4, 4
)

// LaneOrder is the order of the lanes that the backlog of one campaign takes. It depends on the campaign's id and on the number of lanes
// alone, so that all daemons know it.
type LaneOrder struct {
	first, step, lanes int
}

// OrderOfLanes returns the order of a campaign. The number of lanes is at least one. Campaigns that are numbered begin at successive
// lanes: a hash would give some lanes several of them, and others none. The steps from a lane to the next are near the golden section of
// them all, so that successive lanes are spread evenly, and so are the daemons that read them.
func OrderOfLanes(campaign string, lanes int) LaneOrder {
	step := max(1, lanes*618/1000)
	for gcd(int64(step), int64(lanes)) != 1 {
		step++
	}
	name := strings.TrimRight(campaign, "0123456789")
	number := uint64(0)
	if digits := campaign[len(name):]; digits != "" { // a parse error would allocate
		number, _ = strconv.ParseUint(digits, 10, 64) // too large a number is the largest one
	}
	return LaneOrder{int((CampaignHash(name)%uint64(lanes) + number%uint64(lanes)) % uint64(lanes)), step, lanes}
}

// Lane returns the i-th lane of the order, from 0 on; after the last one comes the first again.
func (o LaneOrder) Lane(i int) int { return (o.first + i%o.lanes*o.step) % o.lanes }

// LanesFor returns the lanes for the next jobs of a campaign, as a range of its order from first up to but without end. As its jobs in
// lanes grow in number, they go to the first lane, then the next fifteen, then all. There are few steps, since a job that is written
// again after a crash is recognised only in the lane where it is. It does not matter at what rate the backlog was written: when the rate
// is raised, many daemons send it. Campaigns get fewer lanes if too many large or huge backlogs would share a lane.
func LanesFor(jobs int64, large, huge, lanes int) (first, end int) {
	switch {
	case jobs < LargeBacklog || large*someLanes > maxShared*lanes || lanes == 1:
		return 0, 1
	case jobs < HugeBacklog || huge > maxHuge:
		return 1, min(someLanes, lanes)
	}
	return 0, lanes
}
