package requeue

import (
	"math"

	"github.com/pacer/pacer/internal/delivery"
)

// stripes are the lanes of one campaign over which the jobs of a batch are spread. A job's lane depends on where it was
// read, so that after a crash it is most likely written to the same lane again, whose reader recognises its second record.
// Jobs of one source whose offsets are near have the same lane: they need few requests, and keep their order for a while.
//
// Lanes are chosen by rendezvous hashing: each has a score for each stretch of offsets, and the highest wins. So a lane
// that is added takes only its share of the stretches, and the other ones stay where they are.
type stripes struct {
	lanes   []int
	weights []float64 // of the lanes; nil: equal

	// The last stretch and its lane.
	stretch int64
	lane    int
	chosen  bool
}

const (
	// stretchBits is the logarithm of how many offsets a stretch has. A batch has at most 500 jobs.
	stretchBits = 8
	// leastWaiting is the number of waiting jobs below which no lane counts as empty.
	leastWaiting = 500
)

// weigh weighs the lanes by what waits in each of them, so that all run dry at about the same time. The lane with the
// most gets the mean as its weight, and the others as much more as they have less: what is written before the next count
// cannot turn the difference around unless it is more than what waits. A lane that is not counted, since nobody reads it,
// counts as one with the most: it is not empty, and nothing that goes there is sent soon. Lanes that differ little weigh the
// same, so that from one count to the next, and over a crash, most jobs keep their lane.
func (s *stripes) weigh(waiting map[int]int64) {
	most, sum, counted := int64(0), int64(0), int64(0)
	for _, lane := range s.lanes {
		if n, ok := waiting[lane]; ok {
			most, sum, counted = max(most, n), sum+n, counted+1
		}
	}
	base := max(sum/max(1, counted), leastWaiting)
	s.weights = make([]float64, len(s.lanes))
	for i, lane := range s.lanes {
		s.weights[i] = float64(base)
		if n, ok := waiting[lane]; ok && most-n > base/4 {
			s.weights[i] += float64(most - n)
		}
	}
}

// level returns the lanes that jobs are moved to from another lane of their campaign: all but those that nobody reads, or in which
// half as much again waits as in all lanes on average; all if there are no others. These are not weighed: they are empty at first,
// and weights would change with each count, so that a job that is moved a second time after a crash would meet its first record
// in another lane.
func level(lanes []int, waiting map[int]int64) []int {
	sum := int64(0)
	for _, n := range waiting {
		sum += n
	}
	var free []int
	for _, lane := range lanes {
		if n, ok := waiting[lane]; ok && 2*n*int64(len(waiting)) <= 3*sum {
			free = append(free, lane)
		}
	}
	if len(free) == 0 {
		return lanes
	}
	return free
}

// of returns the lane of a job.
func (s *stripes) of(j *delivery.Job) int {
	if len(s.lanes) == 1 {
		return s.lanes[0]
	}
	stretch := j.Offset >> stretchBits
	if !s.chosen || s.stretch != stretch {
		s.stretch, s.lane, s.chosen = stretch, s.choose(delivery.CampaignHash(j.Source.Name()), stretch), true
	}
	return s.lane
}

// choose returns the lane with the highest score. That of a lane with weight w is -w/ln(u), u being a number between 0 and
// 1 by the hash of the source, the stretch and the lane; so each wins as often as its weight says (Schindelhauer and
// Schomaker, Weighted Distributed Hash Tables, 2005).
func (s *stripes) choose(source uint64, stretch int64) (lane int) {
	best := math.Inf(-1)
	for i, l := range s.lanes {
		h := mix(mix(source^uint64(stretch)) ^ uint64(l))
		u := (float64(h>>11) + 0.5) / (1 << 53)
		w := 1.0
		if s.weights != nil {
			w = s.weights[i]
		}
		if score := -w / math.Log(u); score > best {
			best, lane = score, l
		}
	}
	return lane
}

// mix spreads the bits of a hash: the finalizer of SplitMix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
