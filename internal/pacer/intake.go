package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// intake is what of a campaign's jobs may come from the sources that keep them until there is room. The zero value is ready.
type intake struct {
	waiting []delivery.Source // sources with jobs that were refused for want of room, in the order in which they began to wait
	window  int64             // units that may wait here, after yielding; 0: as many as usual
	coming  int64             // units of room that lanes were told of and have not used
	until   int64             // local time until which these are waited for
	unit    int64             // bytes of a unit, about
}

const (
	// leastGranted and mostGranted bound the units of room that one lane is told of. For fewer, as long as there are other lanes to be
	// told later, a read costs more than what it brings; for more, it may not hand over as many.
	leastGranted, mostGranted = 512, 2048
	// leastComing and mostComing bound how long room that lanes were told of is waited for.
	leastComing, mostComing = 20 * time.Millisecond, 250 * time.Millisecond
)

// await adds a source that keeps jobs until there is room for them.
func (i *intake) await(src delivery.Source) {
	if !slices.Contains(i.waiting, src) {
		i.waiting = append(i.waiting, src)
	}
}

// came records that a lane has used some of the room that it was told of.
func (i *intake) came(units int64) { i.coming = max(0, i.coming-units) }

// grant notifies waiting sources of room for units, of which each gets a part: the campaign may have several lanes
// here, and what is read for room that another has taken is read again. Where the parts would be small, the lanes that began to
// wait last go on waiting, so that all take turns. It returns how many units the lanes were told of.
func (i *intake) grant(campaign string, units int64) (told int64) {
	n, most := int64(len(i.waiting)), max(1, units/leastGranted)
	part := func(of int64) int64 { return (units + of - 1) / of }
	list := i.waiting
	i.waiting = nil
	for _, src := range list {
		if src.Place() == delivery.FromIngress {
			src.GrantCapacity(campaign, part(n))
			continue
		}
		if most--; most < 0 {
			i.waiting = append(i.waiting, src)
			continue
		}
		room := part(min(n, max(1, units/leastGranted)))
		if units < settleAll {
			room = min(room, mostGranted)
		}
		src.GrantCapacity(campaign, room)
		told += room
	}
	return told
}
