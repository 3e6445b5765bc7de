package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
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

	mu    sync.Mutex
	marks map[partition]lowWatermark // of which it is not known that all before them is removed

	// Of Run's goroutine.
	begins   map[partition]int64 // where the partitions begin, from the last answer
	refusals retry.Outage
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
		client: client, sweep: sweepEvery, logger: logger, marks: map[partition]lowWatermark{}, begins: map[partition]int64{},
		deleted: promauto.With(registerer).NewCounter(prometheus.CounterOpts{
			Name: "pacer_janitor_deleted_records_total",
			Help: "Records removed from lanes and timers because every position has passed them.",
		}),
	}
}

// Trim is for Options.Trim.
func (j *Janitor) Trim(at broker.Partition, topic delivery.TopicID, offset int64) {
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
	marks := make(map[partition]lowWatermark, len(j.marks))
	for at, w := range j.marks {
		if time.Since(w.at) > markHolds {
			delete(j.marks, at)
		} else {
			marks[at] = w
		}
	}
	j.mu.Unlock()
	if len(marks) == 0 {
		return
	}
	due := j.current(ctx, marks)
	j.findPartitions(ctx, due)
	for at, offset := range due {
		begin, known := j.begins[at]
		if known && begin >= offset {
			j.done(at, offset)
		}
		if !known || begin >= offset {
			delete(due, at)
		}
	}
	if len(due) > 0 {
		j.remove(ctx, due)
	}
}

// current returns the offsets of the low watermarks that are still of the topics with those names. The others are dropped.
func (j *Janitor) current(ctx context.Context, marks map[partition]lowWatermark) map[partition]int64 {
	due := make(map[partition]int64, len(marks))
	topics := map[string]broker.Identity{}
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
		if w.topic == topic.Topic {
			due[at] = w.offset
		} else {
			j.done(at, w.offset)
		}
	}
	return due
}

// findPartitions asks where partitions begin, where that is not known or no longer true: one whose low watermark lies before
// its beginning was recreated. Deleted records are counted from there.
func (j *Janitor) findPartitions(ctx context.Context, due map[partition]int64) {
	var ask []partition
	for at, offset := range due {
		if begin, known := j.begins[at]; !known || offset < begin {
			delete(j.begins, at)
			ask = append(ask, at)
		}
	}
	if len(ask) == 0 {
		return
	}
	begins, err := j.client.Offsets(ctx, broker.Earliest, ask...)
	if err != nil {
		j.logger.Debug("the first offsets of lanes and timers cannot be read; trying again later", "error", err)
	}
	maps.Copy(j.begins, begins)
}

// remove asks for everything before the offsets to be removed. What fails is tried again with the next sweep.
func (j *Janitor) remove(ctx context.Context, before map[partition]int64) {
	answer, err := j.client.DeleteRecords(ctx, before)
	if err != nil {
		j.logger.Debug("kafka was not asked to delete delivered records; trying again later", "error", err)
		return
	}
	worked := false   // for some partition
	var refusal error // of a broker that will go on refusing
	for at, offset := range before {
		deleted, answered := answer[at]
		switch {
		case !answered:
		case deleted.Err == nil:
			worked = true
			j.begin(at, deleted.Low)
			if deleted.Low >= offset {
				j.done(at, offset)
			}
		case broker.OutOfRange(deleted.Err): // the topic was recreated, and is shorter
			delete(j.begins, at)
			j.done(at, offset)
		case broker.Refused(deleted.Err):
			refusal = fmt.Errorf("delete records of %s: %w", at, deleted.Err)
		default:
			j.logger.Debug("delivered records are not deleted yet", "topic", at.Topic, "partition", at.ID, "error", deleted.Err)
		}
	}
	j.report(worked, refusal)
}

// begin records where a partition begins, and counts the records deleted since the last answer.
func (j *Janitor) begin(at partition, low int64) {
	if was, known := j.begins[at]; known && low > was {
		j.deleted.Add(float64(low - was))
	}
	j.begins[at] = low
}

// done drops a low watermark unless there is a later one by now.
func (j *Janitor) done(at partition, offset int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.marks[at].offset == offset {
		delete(j.marks, at)
	}
}

// report logs when refusals begin and end.
func (j *Janitor) report(worked bool, refusal error) {
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
