package embedded

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Arrival is one request as the receiver saw it.
type Arrival struct {
	At      time.Duration // since the receiver's epoch, on the monotonic clock
	Job     int32         // index into Journal.Jobs
	Attempt int32         // as the request said; 0 if it did not
	Status  int16         // what was answered
}

// Accepted tells whether the receiver took the job.
func (a Arrival) Accepted() bool { return a.Status >= 200 && a.Status < 300 }

// Journal is everything that was received for one campaign, in order of arrival.
type Journal struct {
	Campaign string
	Jobs     []string // the distinct job ids
	Arrivals []Arrival
	// Closed are the stretches in which the receiver had asked the sender to wait: from each answer with Retry-After
	// until it had passed, overlapping ones joined.
	Closed []Interval
}

// Interval is a stretch of time since the receiver's epoch: From inclusive, To exclusive.
type Interval struct{ From, To time.Duration }

// arrivals is the receiver's memory: 24 bytes a request and each job's id once, up to a fixed number of
// requests. Beyond that it counts what it leaves out, and whoever reads it must not trust the rest.
type arrivals struct {
	limit int

	mu        sync.Mutex // guards everything below; held for a few map operations, never during I/O
	total     int
	dropped   int
	campaigns map[string]*journal
}

type journal struct {
	Journal
	index    map[string]int32 // job id -> index into Jobs
	seen     []int32          // requests so far, by job
	accepted int              // requests answered with 2xx
}

func newArrivals(limit int) *arrivals {
	return &arrivals{limit: limit, campaigns: make(map[string]*journal)}
}

// begin notes that a request arrived and tells which one of its job it is (1 for the first). The answer is
// added by finish; ok is false when the memory is full.
func (a *arrivals) begin(campaign, job string, at time.Duration, attempt int32) (slot, nth int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total >= a.limit {
		a.dropped++
		return 0, 1, false
	}
	a.total++
	j := a.campaigns[campaign]
	if j == nil {
		j = &journal{Journal: Journal{Campaign: campaign}, index: make(map[string]int32)}
		a.campaigns[campaign] = j
	}
	id, known := j.index[job]
	if !known {
		id = int32(len(j.Jobs))
		j.Jobs = append(j.Jobs, job)
		j.seen = append(j.seen, 0)
		j.index[job] = id
	}
	j.seen[id]++
	j.Arrivals = append(j.Arrivals, Arrival{At: at, Job: id, Attempt: attempt})
	return len(j.Arrivals) - 1, int(j.seen[id]), true
}

// finish records the answer to the request that begin gave this slot.
func (a *arrivals) finish(campaign string, slot int, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	j := a.campaigns[campaign]
	j.Arrivals[slot].Status = int16(status)
	if j.Arrivals[slot].Accepted() {
		j.accepted++
	}
}

// closeGate records that the sender was told to wait from one instant to another.
func (a *arrivals) closeGate(campaign string, closed Interval) {
	a.mu.Lock()
	defer a.mu.Unlock()
	j := a.campaigns[campaign]
	j.Closed = append(j.Closed, closed)
}

// journals are copies, ordered by campaign, of what was recorded, and the number of requests left out.
func (a *arrivals) journals() (journals []Journal, dropped int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.campaigns {
		journals = append(journals, Journal{
			Campaign: j.Campaign, Jobs: slices.Clone(j.Jobs), Arrivals: slices.Clone(j.Arrivals), Closed: union(j.Closed),
		})
	}
	slices.SortFunc(journals, func(x, y Journal) int { return strings.Compare(x.Campaign, y.Campaign) })
	for i := range journals {
		// Requests are stamped before they reach the lock, so two may stand in the wrong order.
		slices.SortStableFunc(journals[i].Arrivals, func(x, y Arrival) int { return cmp.Compare(x.At, y.At) })
	}
	return journals, a.dropped
}

// accepted counts, for the live view, the requests of each campaign that were accepted.
func (a *arrivals) accepted() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := make(map[string]int, len(a.campaigns))
	for id, j := range a.campaigns {
		counts[id] = j.accepted
	}
	return counts
}

// union joins overlapping and touching intervals; the result is ordered and disjoint.
func union(intervals []Interval) []Interval {
	sorted := slices.SortedFunc(slices.Values(intervals), byStart)
	var joined []Interval
	for _, in := range sorted {
		if last := len(joined) - 1; last >= 0 && in.From <= joined[last].To {
			joined[last].To = max(joined[last].To, in.To)
			continue
		}
		joined = append(joined, in)
	}
	return joined
}

func byStart(x, y Interval) int { return cmp.Compare(x.From, y.From) }
