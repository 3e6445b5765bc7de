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
	// Closed are the intervals that the receiver's Retry-After answers asked to wait. They overlap.
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

// arrivals is the receiver's memory: 16 bytes per request and each job's id once.
type arrivals struct {
	mu        sync.Mutex // guards campaigns; held for a few map operations, never during I/O
	campaigns map[string]*journal
}

type journal struct {
	Journal
	index    map[string]int32 // job id -> index into Jobs
	seen     []int32          // requests so far, by job
	accepted int              // requests answered with 2xx
}

// begin records that a request arrived. It returns the slot that finish takes, the number of the job in its campaign (from 0) and that of the
// request among those of its job (from 1).
func (a *arrivals) begin(campaign, job string, at time.Duration) (slot, number, nth int) {
	a.mu.Lock()
	defer a.mu.Unlock()
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
	return len(j.Arrivals) - 1, int(id), int(j.seen[id])
}

// finish records the answer to the request with this slot.
func (a *arrivals) finish(campaign string, slot, status int) {
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

// journals returns copies of what was recorded, by campaign.
func (a *arrivals) journals() map[string]Journal {
	a.mu.Lock()
	defer a.mu.Unlock()
	journals := make(map[string]Journal, len(a.campaigns))
	for campaign, j := range a.campaigns {
		// Requests are stamped before they take the lock, so two may be in the wrong order.
		inOrder := slices.SortedStableFunc(slices.Values(j.Arrivals), func(x, y Arrival) int { return cmp.Compare(x.At, y.At) })
		journals[campaign] = Journal{Jobs: slices.Clone(j.Jobs), Arrivals: inOrder, Closed: slices.Clone(j.Closed)}
	}
	return journals
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
