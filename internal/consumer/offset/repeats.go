package offset

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
)

// maxRepeats bounds the arrivals that all Repeats of the process remember together. One takes about 40 bytes, so they take 32 MiB.
// A daemon with 512 lanes still remembers more of each than the relay writes at once.
const maxRepeats = 800_000

// Origins hashes arrivals, and counts the Repeats of the process that remember any. It is safe for concurrent use.
type Origins struct {
	seed  maphash.Seed
	users atomic.Int64
}

// NewOrigins returns Origins without users.
func NewOrigins() *Origins { return &Origins{seed: maphash.MakeSeed()} }

// arrival is one arrival of a job in a lane or a timer. A job that comes back from a timer has made another hop, so its second arrival
// does not repeat the first. A crash between produce and commit, or a lost answer, leaves twins that are equal in every field. The
// content counts, too: a log that has lost its end gives other records the offsets of the lost ones, and the id of a topic is not always
// known.
type arrival struct {
	origin          delivery.Origin
	attempt         int
	hops, timerHops int32
	id              string
}

// arrivalSum is 128 bits of an arrival and its payload: two different ones are never taken for each other.
type arrivalSum [2]uint64

func (t *Origins) sum(j *delivery.Job, hops int32) arrivalSum {
	a := arrival{origin: j.Origin, attempt: j.Attempt, hops: hops, timerHops: j.TimerHops, id: j.ID}
	return arrivalSum{maphash.Comparable(t.seed, a), maphash.Bytes(t.seed, j.Payload)}
}

// Moved reports whether one of the lanes, as far as they were read, has a job of ingress: a daemon that was killed may have moved it there, and not
// committed that.
func (t *Origins) Moved(j *delivery.Job, lanes []*Repeats) bool {
	there := t.sum(j, j.Hops+1)
	return slices.ContainsFunc(lanes, func(r *Repeats) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, seen := r.find(there)
		return seen
	})
}

// Repeats recognises records of one lane, or of one partition of a timer, that repeat one handed over before. It remembers the
// last ones: half of its equal part of maxRepeats at least. It is safe for concurrent use.
type Repeats struct {
	*Origins
	most           int64
	mu             sync.Mutex
	recent, before map[arrivalSum]int64 // the offset in the partition; recent replaces before once it is full
}

// NewRepeats returns empty Repeats.
func NewRepeats(origins *Origins) *Repeats { return &Repeats{Origins: origins, most: maxRepeats} }

// Repeated reports whether the job at offset was read before at another offset, and remembers it if not.
func (r *Repeats) Repeated(j *delivery.Job, offset int64) bool {
	a := r.sum(j, j.Hops)
	r.mu.Lock()
	defer r.mu.Unlock()
	first, seen := r.find(a)
	if !seen || offset < first { // if the first was forgotten, and is read again, the later one is the repeat
		r.remember(a, offset)
		return false
	}
	return first != offset
}

func (r *Repeats) find(a arrivalSum) (first int64, seen bool) {
	if first, seen = r.recent[a]; !seen {
		first, seen = r.before[a]
	}
	return first, seen
}

func (r *Repeats) remember(a arrivalSum, offset int64) {
	switch {
	case r.recent == nil:
		r.users.Add(1)
		r.recent = map[arrivalSum]int64{}
	case int64(len(r.recent)) >= max(1, r.most/2/r.users.Load()):
		r.before, r.recent = r.recent, map[arrivalSum]int64{}
	}
	r.recent[a] = offset
}

// Forget releases the memory when the partition is lost.
func (r *Repeats) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent != nil {
		r.users.Add(-1)
	}
	r.recent, r.before = nil, nil
}
