package requeue

import (
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// knownAfter is how soon a job that was written to a lane is in the counts of what waits there.
const knownAfter = 3 * time.Second

// backlogs are how much waits in lanes: what the daemons count together, and what this one has written lately. Safe for concurrent use.
type backlogs struct {
	counted func(campaign string) (jobs, all int64) // nil: nothing is counted

	mu          sync.Mutex
	since       time.Time         // when now was begun
	now, before map[written]int64 // jobs written since then, and in up to knownAfter before
}

// written are jobs of one campaign that were read from one source.
type written struct{ source, campaign string }

// asMuch is for how many jobs one counts that was just written: the others are those of other sources. These are not counted
// themselves, so that after a crash, jobs that are written again meet the same numbers.
const asMuch = 4

// grow notes that so many jobs are written, and returns how many waited before, of the campaign and of all.
func (b *backlogs) grow(w written, jobs int64) (own, all int64) {
	if b.counted != nil {
		own, all = b.counted(w.campaign)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if age := time.Since(b.since); age > knownAfter || b.now == nil {
		b.before = b.now
		if age > 2*knownAfter {
			b.before = nil
		}
		b.now, b.since = map[written]int64{}, time.Now()
	}
	own += asMuch * (b.now[w] + b.before[w])
	b.now[w] += jobs
	return own, all
}

// lanesOf are the lanes of one campaign that jobs of a batch are written to.
type lanesOf struct {
	order    delivery.LaneOrder
	own, all int64 // how many jobs wait, those of the batch included whose lane is chosen
}

// stretchBits is the logarithm of how many successive offsets of a source go to one lane: they need few requests, and keep their order
// for a while.
const stretchBits = 7

// next returns the lane of the next job. It depends on where the job was read, so that after a crash it is most likely written to the
// same lane again, whose reader recognises its second record. Of partitions that refuse, those to avoid get none, and the others none while
// another of the campaign's lanes accepts records.
func (s *lanesOf) next(j *delivery.Job, l layout) int {
	first, end := delivery.LanesFor(s.own, max(s.own, s.all), l.partitions)
	s.own += asMuch
	width := end - first
	at := int(mix(delivery.CampaignHash(j.Source.Name())^uint64(j.Offset>>stretchBits)) % uint64(width))
	for k := range width {
		if lane := s.order.Lane(first + (at+k)%width); !slices.Contains(l.avoid, lane) && !slices.Contains(l.held, lane) {
			return lane
		}
	}
	for k := range l.partitions {
		if lane := s.order.Lane(first + at + k); !slices.Contains(l.avoid, lane) {
			return lane
		}
	}
	return s.order.Lane(first + at)
}

// mix spreads the bits of a hash: the finalizer of SplitMix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// without returns the first of n partitions, from id on, that is not to be avoided; id if all are.
func without(avoid []int, id, n int) int {
	for k := range n {
		if next := (id + k) % n; !slices.Contains(avoid, next) {
			return next
		}
	}
	return id
}
