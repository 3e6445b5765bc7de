package requeue

import (
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// knownAfter is how soon a job that was written to a lane is in the counts of what waits there.
const knownAfter = 3 * time.Second

// Backlog is how much waits in lanes: jobs of one campaign, and how many campaigns have large and huge backlogs.
type Backlog struct {
	Jobs        int64
	Large, Huge int
}

// backlogs are how much waits in lanes: what the daemons count together, and what this one has written lately. Safe for concurrent use.
type backlogs struct {
	counted func(campaign string) Backlog // nil: nothing is counted

	mu     sync.Mutex
	since  time.Time          // when the present span of knownAfter began
	lately map[string]*recent // by source
}

// recent is what was written of one source in the present span and in the one before, by campaign. Other sources do not count, so that
// after a crash, jobs that are written again meet the same numbers.
type recent struct{ now, before map[string]int64 }

const (
	// writtenAlike is for how many jobs one of a source counts that was just written: as many again are written of other sources.
	writtenAlike = 4
	// fewCampaigns is of how many campaigns a source may have jobs for these to count at once. Otherwise many backlogs would become large together,
	// before it is known that they are many.
	fewCampaigns = 16
)

// grow notes that a job is written, and returns what waited before.
func (b *backlogs) grow(source, campaign string) (waits Backlog) {
	if b.counted != nil {
		waits = b.counted(campaign)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if age := time.Since(b.since); age > knownAfter {
		for source, r := range b.lately {
			if r.before, r.now = r.now, map[string]int64{}; len(r.before) == 0 || age > 2*knownAfter {
				delete(b.lately, source)
			}
		}
		b.since = time.Now()
	}
	r := b.lately[source]
	if r == nil {
		r = &recent{now: map[string]int64{}}
		b.lately[source] = r
	}
	if max(len(r.now), len(r.before)) <= fewCampaigns { // otherwise nobody asks for the counts
		waits.Jobs += writtenAlike * (r.now[campaign] + r.before[campaign])
		r.now[campaign]++
	}
	return waits
}

// stretchBits is the logarithm of how many successive offsets of a source go to one lane, before the next ones go to the next lane: they need
// few requests, and keep their order for a while.
const stretchBits = 7

// laneOf returns the lane of a job of a source. It depends on where the job was read, so that after a crash it is most likely written to the
// same lane again, whose reader recognises its second record. Of partitions that refuse, those to avoid get none, and the others none while
// another of the campaign's lanes accepts records.
func (b *backlogs) laneOf(j *delivery.Job, source string, l layout) int {
	waits := b.grow(source, j.Campaign)
	first, end := delivery.LanesFor(waits.Jobs, waits.Large, waits.Huge, l.partitions)
	order, width := delivery.OrderOfLanes(j.Campaign, l.partitions), end-first
	at := int((delivery.CampaignHash(source)>>1 + uint64(j.Offset>>stretchBits)) % uint64(width))
	for k := range width {
		if lane := order.Lane(first + (at+k)%width); !slices.Contains(l.avoid, lane) && !slices.Contains(l.held, lane) {
			return lane
		}
	}
	for k := range l.partitions {
		if lane := order.Lane(first + at + k); !slices.Contains(l.avoid, lane) {
			return lane
		}
	}
	return order.Lane(first + at)
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
