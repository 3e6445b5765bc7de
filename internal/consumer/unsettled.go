package consumer

import (
	"fmt"
	"slices"
)

// Unsettled reads a committed offset and its metadata as the next owner of the partition would, for those who count what
// is left when no daemon runs. The function it returns tells whether the record of a campaign at an offset is still to
// be dealt with. In a lane that differs from campaign to campaign; elsewhere the campaign does not matter.
func Unsettled(lane bool, committed int64, metadata string) (open func(campaign string, offset int64) bool, err error) {
	if lane {
		p, err := decodeLane(committed, metadata)
		if err != nil {
			return nil, fmt.Errorf("read the commit of a lane: %w", err)
		}
		return p.unsettled, nil
	}
	spans, err := decodeSettled(committed, metadata)
	if err != nil {
		return nil, fmt.Errorf("read a commit: %w", err)
	}
	return func(_ string, offset int64) bool { return offset >= committed && !covered(spans, offset) }, nil
}

// unsettled tells whether the record at offset is open: those of a campaign with a position of its own from its low on,
// all others from the main position on.
func (p lanePositions) unsettled(campaign string, offset int64) bool {
	hash := campaignHash(campaign)
	for _, e := range p.entries {
		if e.hash == hash {
			return offset >= e.low && !covered(e.settled, offset)
		}
	}
	return offset >= p.main
}

func covered(spans []span, offset int64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.first <= offset && offset <= s.last })
}
