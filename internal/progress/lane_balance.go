package progress

import (
	"maps"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maxNarrow bounds the list of narrow lanes.
	maxNarrow = 1000
	// leastSurplus is how many jobs more than the others a narrow lane has: fewer are sent before they are moved.
	leastSurplus = 32
)

// surplus returns how many of the jobs in a lane, of which there are here now, are to be moved to the other lanes of the campaign,
// given what waits in each lane that is read: half of those above the mean, if the lane has more than twice as many as the others
// have on average. Half, because the counts are some seconds old: they are followed by others before much is moved.
func surplus(waiting map[int]int64, lane int, here int64) int64 {
	lanes, others := int64(1), int64(0)
	for other, n := range waiting {
		if other != lane {
			lanes, others = lanes+1, others+n
		}
	}
	if lanes < 2 || here*(lanes-1) <= 2*others+leastSurplus*(lanes-1) {
		return 0
	}
	return (here - (here+others)/lanes) / 2
}

// unevenLanes lists those of a daemon's lanes that hold more of a campaign's backlog than its other lanes, of which another daemon
// reads some, and those of campaigns that need more lanes than they have, if there are other daemons. stripes are what waits in each
// lane, by campaign.
func (b *Board) unevenLanes(mine []delivery.LaneBacklog, campaigns map[uint64]*delivery.Campaign, stripes map[uint64]map[int]int64, needs func(campaign string) int) (list []delivery.UnevenLane) {
	if b.daemons < 2 {
		return nil
	}
	read := make(map[int]bool, len(mine))
	for _, l := range mine {
		read[l.Lane] = true
	}
	for _, l := range mine {
		for _, w := range l.Waiting {
			c := campaigns[w.Campaign]
			if c == nil || w.Jobs <= leastSurplus || c.Overflow == delivery.OverflowBlock {
				continue
			}
			n := delivery.UnevenLane{Campaign: c.ID, Lane: l.Lane, Few: len(c.Lanes) < needs(c.ID)}
			if b.others(read, stripes[w.Campaign]) {
				n.Surplus = surplus(stripes[w.Campaign], l.Lane, w.Jobs)
			}
			if n.Few || n.Surplus > 0 {
				if list = append(list, n); len(list) == maxNarrow {
					return list
				}
			}
		}
	}
	return list
}

// others reports whether one of the lanes is read by another daemon, which runs.
func (b *Board) others(mine map[int]bool, lanes map[int]int64) bool {
	for lane := range lanes {
		if !mine[lane] && b.read[lane] {
			return true
		}
	}
	return false
}

// Uneven returns the lanes that hold much more of the backlog of a campaign, which has these lanes, than the others do.
func (b *Board) Uneven(campaign string, lanes []int) (uneven []int) {
	hash := delivery.CampaignHash(campaign)
	waiting := b.stripes(map[uint64]*delivery.Campaign{hash: {ID: campaign, Lanes: lanes}})[hash]
	for _, lane := range slices.Sorted(maps.Keys(waiting)) {
		if surplus(waiting, lane, waiting[lane]) > 0 {
			uneven = append(uneven, lane)
		}
	}
	return uneven
}
