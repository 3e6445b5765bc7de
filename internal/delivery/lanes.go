package delivery

const (
	// lanePortion is how many jobs of a campaign wait in its first lane before others are used, at least.
	lanePortion = 512
	// lanesOfSome is how many lanes a backlog has that is too large for one, and has less than so many portions.
	lanesOfSome = 16
	// lanePortions bounds how many portions wait in a lane, on average: portions grow with what waits of all campaigns.
	lanePortions = 4
)

// LaneOrder is the order in which the backlog of one campaign takes lanes. It depends on the campaign's id and on the number of lanes
// alone, so that all daemons know it.
type LaneOrder struct {
	first, step, lanes int
}

// OrderOfLanes returns the order of a campaign among so many lanes, at least one. The steps from a lane to the next are near
// the golden section of them all, so that successive lanes are spread evenly, and so are the daemons that read them.
func OrderOfLanes(campaign string, lanes int) LaneOrder {
	step := max(1, lanes*618/1000)
	for gcd(int64(step), int64(lanes)) != 1 {
		step++
	}
	return LaneOrder{int(CampaignHash(campaign) % uint64(lanes)), step, lanes}
}

// Lane returns the i-th lane of the order, from 0 on; after the last one comes the first again.
func (o LaneOrder) Lane(i int) int { return (o.first + i%o.lanes*o.step) % o.lanes }

// LanesFor returns which lanes of its order the next jobs of a campaign go to, from the first up to but without the end, if so
// many of its jobs wait in lanes, and so many jobs of all campaigns: the first lane until a portion waits, then the next fifteen, and
// from sixteen portions on all. There are few steps, since a job that is written again after a crash is recognised only in the
// lane where it is. It does not matter at what rate the backlog was written: when the rate is raised, many daemons send it. Portions are
// larger if much waits of other campaigns, since a lane serves few campaigns better than many.
func LanesFor(jobs, all int64, lanes int) (first, end int) {
	portion := int64(lanePortion)
	for portion*lanePortions*int64(lanes) < all {
		portion *= 8
	}
	switch {
	case jobs < portion || lanes == 1:
		return 0, 1
	case jobs < lanesOfSome*portion:
		return 1, min(lanesOfSome, lanes)
	}
	return 0, lanes
}
