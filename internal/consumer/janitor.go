package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	sweepEvery = 20 * time.Second
	lastSweep  = 3 * time.Second // of the sweep at the end

	// markHolds is how long a low watermark is valid. The owner of a partition repeats it every few seconds; one that is
	// not repeated may belong to a topic that has been recreated since.
	markHolds = time.Minute
)

// Janitor deletes records from lanes and timers that will not be read again: those topics have no retention, since jobs
// wait there. Trim gives it the low watermark of a partition, and it periodically asks Kafka (DeleteRecords), with one
// request for each broker, to delete the records before it. Kafka makes such records unreadable at once, and frees
// their disk when a whole segment of the log lies before the watermark.
//
// A low watermark that was not repeated within a minute is dropped. Failed deletions are tried again with the next
// sweep. Nothing is lost when the process ends: the next owner of the partition gives its low watermark again.
//
// Trim is safe for concurrent use; Run is called once.
type Janitor struct {
	client  *broker.Client
	sweep   time.Duration // the longest time between two sweeps, the shortest being half of it
	logger  *slog.Logger
	deleted prometheus.Counter

	refusals retry.Outage

	deleting sync.Mutex // held during a request; Trim waits for it before a log is read whose offsets may be given out again
	mu       sync.Mutex
	marks    map[partition]lowWatermark // of which it is not known that all before them is removed
}

// lowWatermark is the offset of a partition before which nothing will be read again.
type lowWatermark struct {
	offset int64
	topic  delivery.TopicID // whose log it is in
	at     time.Time        // when it was last repeated
}

// NewJanitor makes a janitor. It does no I/O.
func NewJanitor(client *broker.Client, logger *slog.Logger, registerer prometheus.Registerer) *Janitor {
	return &Janitor{
		client: client, sweep: sweepEvery, logger: logger, marks: map[partition]lowWatermark{},
		deleted: promauto.With(registerer).NewCounter(prometheus.CounterOpts{
			Name: "pacer_janitor_deleted_records_total",
			Help: "Records removed from lanes and timers because every position has passed them.",
		}),
	}
}

// Trim is for Options.Trim.
func (j *Janitor) Trim(at broker.Partition, topic delivery.TopicID, offset int64) {
	if offset <= 0 {
		j.deleting.Lock()
		defer j.deleting.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if offset <= 0 {
		delete(j.marks, at)
		return
	}
	j.marks[at] = lowWatermark{offset, topic, time.Now()}
}

// Run sweeps until ctx ends, once more then, and returns nil.
func (j *Janitor) Run(ctx context.Context) error {
	for {
		if retry.Sleep(ctx, j.sweep/2+rand.N(j.sweep/2)) != nil {
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSweep)
			defer cancel()
			j.sweepOnce(final)
			return nil
		}
		j.sweepOnce(ctx)
	}
}

// sweepOnce deletes all records before the low watermarks.
func (j *Janitor) sweepOnce(ctx context.Context) {
	j.mu.Lock()
	maps.DeleteFunc(j.marks, func(_ partition, w lowWatermark) bool { return time.Since(w.at) > markHolds })
	marks := maps.Clone(j.marks)
	j.mu.Unlock()
	due := j.current(ctx, marks)
	if len(due) == 0 {
		return
	}
	begins, err := j.client.Offsets(ctx, broker.Earliest, slices.Collect(maps.Keys(due))...)
	if err != nil {
		j.logger.Debug("the first offsets of lanes and timers cannot be read; trying again later", "error", err)
	}
	for at, offset := range due {
		begin, known := begins[at]
		if known && begin >= offset {
			j.done(at, offset)
		}
		if !known || begin >= offset {
			delete(due, at)
		}
	}
	j.deleting.Lock()
	defer j.deleting.Unlock()
	j.mu.Lock()
	maps.DeleteFunc(due, func(at partition, offset int64) bool { return j.marks[at].offset < offset }) // dropped since
	j.mu.Unlock()
	if len(due) > 0 {
		j.remove(ctx, due, begins)
	}
}

// current returns the offsets of the low watermarks that are still of the topics with those names. The others are dropped.
func (j *Janitor) current(ctx context.Context, marks map[partition]lowWatermark) map[partition]int64 {
	due := make(map[partition]int64, len(marks))
	topics := map[string]delivery.TopicID{}
	for at, w := range marks {
		topic, asked := topics[at.Topic]
		if !asked {
			var err error
			if topic, err = j.client.IdentityOf(ctx, at); err != nil {
				j.logger.Debug("the id of a topic cannot be read; trying again later", "topic", at.Topic, "error", err)
				continue
			}
			topics[at.Topic] = topic
		}
		if w.topic == topic {
			due[at] = w.offset
		} else {
			j.done(at, w.offset)
		}
	}
	return due
}

// remove asks for everything from where the partitions begin to the offsets to be removed. The next sweep retries failures.
func (j *Janitor) remove(ctx context.Context, before, begins map[partition]int64) {
	answer := j.client.DeleteRecords(ctx, before)
	worked := false   // for some partition
	var refusal error // of a broker that will go on refusing
	for at, offset := range before {
		deleted, answered := answer[at]
		switch {
		case !answered:
		case deleted.Err == nil:
			worked = true
			j.deleted.Add(float64(max(0, deleted.Low-begins[at])))
			if deleted.Low >= offset {
				j.done(at, offset)
			}
		case broker.OutOfRange(deleted.Err): // the topic was recreated, and is shorter
			j.done(at, offset)
		case broker.Refused(deleted.Err):
			refusal = fmt.Errorf("delete records of %s: %w", at, deleted.Err)
		default:
			j.logger.Debug("delivered records are not deleted yet", "topic", at.Topic, "partition", at.ID, "error", deleted.Err)
		}
	}
	if refusal != nil {
		if j.refusals.Failed() {
			j.logger.Warn("kafka refuses to delete delivered records; lanes and timers grow until it accepts",
				"error", refusal, "remedy", "allow Delete on the topics that pacer owns")
		}
	} else if worked {
		if _, over := j.refusals.Worked(); over {
			j.logger.Info("kafka deletes delivered records again")
		}
	}
}

// done drops a low watermark unless there is a later one by now.
func (j *Janitor) done(at partition, offset int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.marks[at].offset == offset {
		delete(j.marks, at)
	}
}
