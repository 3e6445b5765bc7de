package count

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Arrival is one request as seen by the receiver.
type Arrival struct {
	At     time.Duration // since the receiver's epoch, on the monotonic clock
	Job    int32         // index into Journal.Jobs
	Status int16         // of the answer
}

// Accepted reports whether the receiver accepted the job.
func (a Arrival) Accepted() bool { return a.Status >= 200 && a.Status < 300 }

// Journal contains everything received for one campaign, in order of arrival.
type Journal struct {
	Jobs     []string // the distinct job ids
	Arrivals []Arrival
	// Closed are the joined intervals that the receiver's Retry-After answers asked to wait.
	Closed []Interval
}

// Times returns the instants of the arrivals.
func (j *Journal) Times() []time.Duration {
	times := make([]time.Duration, len(j.Arrivals))
	for i, a := range j.Arrivals {
		times[i] = a.At
	}
	return times
}

// arrivals is the receiver's memory: 16 bytes per request and each job's id once, up to a fixed number of requests.
// Further requests are only counted, and then the journals are incomplete.
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

// begin records that a request arrived and returns its number among those of its job (1 for the first). finish adds
// the answer; the slot is notKept if the memory is full.
func (a *arrivals) begin(campaign, job string, at time.Duration) (slot, nth int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total >= a.limit {
		a.dropped++
		return notKept, 1
	}
	a.total++
	j := a.campaigns[campaign]
	if j == nil {
		j = &journal{index: make(map[string]int32)}
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
	j.Arrivals = append(j.Arrivals, Arrival{At: at, Job: id})
	return len(j.Arrivals) - 1, int(j.seen[id])
}

// notKept is the slot of a request beyond the memory.
const notKept = -1

// finish records the answer to the request with this slot.
func (a *arrivals) finish(campaign string, slot, status int) {
	if slot == notKept {
		return
	}
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

// journals returns copies of what was recorded, by campaign, and the number of requests left out.
func (a *arrivals) journals() (journals map[string]Journal, dropped int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	journals = make(map[string]Journal, len(a.campaigns))
	for campaign, j := range a.campaigns {
		// Requests are stamped before they take the lock, so two may be in the wrong order.
		inOrder := slices.SortedStableFunc(slices.Values(j.Arrivals), func(x, y Arrival) int { return cmp.Compare(x.At, y.At) })
		journals[campaign] = Journal{Jobs: slices.Clone(j.Jobs), Arrivals: inOrder, Closed: union(j.Closed)}
	}
	return journals, a.dropped
}

// accepted returns, for live views, the number of accepted requests of each campaign.
func (a *arrivals) accepted() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := make(map[string]int, len(a.campaigns))
	for id, j := range a.campaigns {
		counts[id] = j.accepted
	}
	return counts
}

// union joins overlapping and adjacent intervals; the result is ordered and disjoint.
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
