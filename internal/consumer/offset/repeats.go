package offset

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
)

// Bounds on what is remembered to recognise repeated records: exact, about 100 bytes each.
const (
	maxRepeatsPerLane = 100_000
	maxRepeatsTotal   = 400_000
	maxOriginTopics   = 1 << 12
)

// Origins numbers topics, and counts the entries that all Repeats of the process remember together. It is safe for
// concurrent use.
type Origins struct {
	seed maphash.Seed

	mu      sync.Mutex
	numbers map[originTopic]uint16
	stored  atomic.Int64
}

// originTopic is a topic as an origin names it. One that was made anew is another topic, whose records have the same
// offsets.
type originTopic struct {
	name string
	id   delivery.TopicID
}

// NewOrigins returns Origins without topics.
func NewOrigins() *Origins {
	return &Origins{seed: maphash.MakeSeed(), numbers: map[originTopic]uint16{}}
}

// number returns the number of a topic; false if there are too many, which only records not written by pacer can cause.
func (t *Origins) number(topic originTopic) (uint16, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.numbers[topic]
	if !ok && len(t.numbers) < maxOriginTopics {
		n, ok = uint16(len(t.numbers)), true
		t.numbers[topic] = n
	}
	return n, ok
}

// content hashes what a job is: a log that has lost its end gives other records the offsets of the lost ones, and the
// id of a topic is not always known.
func (t *Origins) content(j *delivery.Job) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(j.ID) // never fails
	_ = h.WriteByte(0)
	_, _ = h.Write(j.Payload)
	return h.Sum64()
}

// arrival is one arrival of a job in a lane or a timer. A job that comes back from a timer has made another hop, so its
// second arrival does not repeat the first; the twins that a crash between produce and commit, or a lost answer, leaves
// behind are equal in every field.
type arrival struct {
	offset    int64
	content   uint64
	partition int32
	attempt   uint32
	topic     uint16
	hops      uint16
	timerHops uint32
}

// Repeats recognises records of one lane, or of one partition of a timer, that repeat one handed over before. It
// remembers the last maxRepeatsPerLane, or fewer if the process holds many partitions. It is not safe for concurrent
// use: the partition's reader owns it.
type Repeats struct {
	topics *Origins
	limit  int
	total  int64
	first  map[arrival]int64 // the offset in the partition
	order  []arrival         // a ring, oldest at head once it is full
	head   int
}

// NewRepeats returns empty Repeats.
func NewRepeats(topics *Origins) *Repeats {
	return &Repeats{topics: topics, limit: maxRepeatsPerLane, total: maxRepeatsTotal, first: map[arrival]int64{}}
}

// Repeated reports whether the job at offset was read before at another offset, and remembers it if not.
func (r *Repeats) Repeated(j *delivery.Job, offset int64) bool {
	v, ok := r.arrivalOf(j)
	if !ok {
		return false
	}
	switch first, seen := r.first[v]; {
	case !seen:
		r.remember(v, offset)
		return false
	case offset < first: // the first was forgotten, and is read again: the later one is the repeat
		r.first[v] = offset
		return false
	default:
		return first != offset
	}
}

func (r *Repeats) arrivalOf(j *delivery.Job) (arrival, bool) {
	if j.Hops > math.MaxUint16 || j.Origin.Partition > math.MaxInt32 {
		return arrival{}, false
	}
	topic, ok := r.topics.number(originTopic{j.Origin.Topic, j.Origin.TopicID})
	return arrival{
		offset: j.Origin.Offset, content: r.topics.content(j), partition: int32(j.Origin.Partition), topic: topic,
		attempt: uint32(j.Attempt), hops: uint16(j.Hops), timerHops: uint32(j.TimerHops),
	}, ok
}

func (r *Repeats) remember(v arrival, offset int64) {
	// A ring whose head has moved cannot grow without losing its order of age.
	full := r.head > 0 || len(r.order) >= r.limit || len(r.order) > 0 && r.topics.stored.Load() >= r.total
	if full {
		delete(r.first, r.order[r.head])
		r.order[r.head] = v
		r.head = (r.head + 1) % len(r.order)
	} else {
		r.order = append(r.order, v)
		r.topics.stored.Add(1)
	}
	r.first[v] = offset
}

// Forget releases the memory when the partition is lost.
func (r *Repeats) Forget() {
	r.topics.stored.Add(-int64(len(r.order)))
	r.first, r.order, r.head = map[arrival]int64{}, nil, 0
}
