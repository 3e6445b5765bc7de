package app

import (
	"sort"
	"time"

	"github.com/pacer/pacer/internal/embedded"
)

// stallReach is how far a stall is felt: those who watch for it wake at other instants, on other processors, than
// those who are late because of it.
const stallReach = 100 * time.Millisecond

// handovers is how often a job waits for a processor between the last look at its slot and the wire: the scheduler
// wakes a sender, the sender a connection's writer, the writer the network.
const handovers = 3

// blurOf says how much later than it was due something may have happened at an instant: as much as the longest stall of
// the process nearby, at each handover. The stalls are in order of their beginning.
func blurOf(stalls []embedded.Interval) func(at time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, s := range stalls {
		longest = max(longest, s.To-s.From)
	}
	return func(at time.Duration) time.Duration {
		most := time.Duration(0)
		first := sort.Search(len(stalls), func(i int) bool { return stalls[i].From >= at-stallReach-longest })
		for _, s := range stalls[first:] {
			if s.From > at+stallReach {
				break
			}
			if s.To >= at-stallReach {
				most = max(most, s.To-s.From)
			}
		}
		return handovers * most
	}
}
