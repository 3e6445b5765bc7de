package consumer

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
)

// Bounds of what is remembered to recognise repeated records: exact, and about 60 bytes each.
const (
	maxRepeatsPerLane = 100_000
	maxRepeatsTotal   = 400_000
	maxOriginTopics   = 1 << 12
)

// originTopics gives topics short numbers, and counts what all lanes of the process remember together. Safe for use by
// several goroutines.
type originTopics struct {
	mu     sync.Mutex
	ids    map[string]uint16
	stored atomic.Int64
}

func newOriginTopics() *originTopics { return &originTopics{ids: map[string]uint16{}} }

// id is the number of a topic; false when there are too many (somebody wrote nonsense into a lane).
func (t *originTopics) id(topic string) (uint16, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[topic]
	if !ok && len(t.ids) < maxOriginTopics {
		id, ok = uint16(len(t.ids)), true
		t.ids[topic] = id
	}
	return id, ok
}

// visit is one stay of a job in a lane. A job that comes back from a timer has made another hop, so that its second
// stay is none of the first's repeats; what a crash between produce and commit leaves behind is equal in all of it.
type visit struct {
	offset    int64
	partition int32
	attempt   uint32
	topic     uint16
	hops      uint16
	timerHops uint32
}

// repeats recognises records of one lane whose twin was handed over before. It remembers the last maxRepeatsPerLane, fewer
// when the process holds many lanes. One goroutine, the lane's reader, uses it.
type repeats struct {
	topics *originTopics
	limit  int
	total  int64
	first  map[visit]int64 // the offset in the lane
	order  []visit         // a ring, oldest at head once it is full
	head   int
}

func newRepeats(topics *originTopics) *repeats {
	return &repeats{topics: topics, limit: maxRepeatsPerLane, total: maxRepeatsTotal, first: map[visit]int64{}}
}

// repeated tells whether the job at offset was read before at another offset of this lane, and remembers it if not.
func (r *repeats) repeated(j *delivery.Job, offset int64) bool {
	v, ok := r.visitOf(j)
	if !ok {
		return false
	}
	switch first, seen := r.first[v]; {
	case !seen:
		r.remember(v, offset)
		return false
	case offset < first: // the first was forgotten, and met again: the later one is the repeat
		r.first[v] = offset
		return false
	default:
		return first != offset
	}
}

func (r *repeats) visitOf(j *delivery.Job) (visit, bool) {
	if j.Hops > math.MaxUint16 || j.Origin.Partition > math.MaxInt32 {
		return visit{}, false
	}
	topic, ok := r.topics.id(j.Origin.Topic)
	return visit{
		offset: j.Origin.Offset, partition: int32(j.Origin.Partition), topic: topic,
		attempt: uint32(j.Attempt), hops: uint16(j.Hops), timerHops: uint32(j.TimerHops),
	}, ok
}

func (r *repeats) remember(v visit, offset int64) {
	// Half-way round the ring it cannot grow without losing the order of age.
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

// forget gives the memory back when the lane is lost.
func (r *repeats) forget() {
	r.topics.stored.Add(-int64(len(r.order)))
	r.first, r.order, r.head = map[visit]int64{}, nil, 0
}
