package consumer

import "github.com/pacer/pacer/internal/delivery"

// reading is an assignment's lanes. They outlive it until the next one: what waited when it ended waits still.
type reading struct {
	generation int32
	lanes      []*laneSource
}

// Backlog says what waits in the lanes that this daemon reads, or read last where it is between two generations: of
// every campaign, the records that are not settled. It is exact up to where the main readers have come, which is the end
// of the lane but for a moment. Safe for use by several goroutines; before the first assignment, Lanes is nil.
func (c *Consumer) Backlog() delivery.LanesBacklog {
	r := c.reading.Load()
	if r == nil {
		return delivery.LanesBacklog{}
	}
	b := delivery.LanesBacklog{Generation: r.generation, Lanes: make([]delivery.LaneBacklog, 0, len(r.lanes))}
	for _, s := range r.lanes {
		b.Lanes = append(b.Lanes, s.backlog())
	}
	return b
}

func (s *laneSource) backlog() delivery.LaneBacklog {
	b := delivery.LaneBacklog{Lane: s.id}
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, c := range s.lane.campaigns {
		if n := c.waiting(); n > 0 {
			b.Waiting = append(b.Waiting, delivery.CampaignCount{Campaign: hash, Jobs: n})
		}
	}
	return b
}
