package requeue

import (
	"slices"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
)

// queueClass says which workers serve a queue.
type queueClass uint8

const (
	urgent  queueClass = iota // timers and dead letters
	lanes                     // never urgent
	events                    // of results, of all sources together
	classes                   // their number
)

func classOf(to delivery.Reroute) queueClass {
	switch to.Kind {
	case delivery.ToLane:
		return lanes
	case delivery.ToResult:
		return events
	}
	return urgent
}

// item is a job on its way to a destination.
type item struct {
	job  *delivery.Job
	to   delivery.Reroute
	size int // of the record in bytes, about; a batch that is too large is halved
	// result is set if an event of the job is written instead of the job.
	result *result
	// unknown is set once a produce call ended without a certain outcome: the record may be at the partition at, and
	// must not be written to another, where its repetition would not be recognised.
	unknown bool
	at      broker.Partition
}

type queueKey struct {
	source delivery.Source // nil: of all
	class  queueClass
}

// queue holds the items of one source and class in their order, or the events of all sources. The relay's lock guards it.
type queue struct {
	queueKey
	items []*item

	busy   bool // a worker serves it; it is not in the ring
	listed bool // it is in the ring
}

// split takes a batch from the front: at most maxJobs and, beyond the first item, maxBytes.
func split(items []*item, maxJobs, maxBytes int) (batch, rest []*item) {
	n, bytes := 0, 0
	for n < min(len(items), maxJobs) {
		if bytes += items[n].size; n > 0 && bytes > maxBytes {
			break
		}
		n++
	}
	batch = slices.Clone(items[:n])
	clear(items[:n]) // the jobs are not held by what append leaves behind
	return batch, items[n:]
}
