package consumer

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const lastSweep = 3 * time.Second // of the sweep at the end

// janitor deletes records from lanes and timers that will not be read again: those topics have no retention, since jobs
// wait there. It periodically asks Kafka (DeleteRecords), with one request for each broker, to delete the records before the low
// watermarks of the partitions that are held. Kafka makes such records unreadable at once, and frees
// their disk when a whole segment of the log lies before the watermark.
//
// Failed deletions are tried again with the next sweep, or by the next owner of the partition. One goroutine runs it.
type janitor struct {
	opt      *Options
	metrics  *metrics
	sources  func() []*source
	refusals retry.Outage
	deleting sync.Mutex // held during a request
}

// run sweeps until ctx ends.
func (j *janitor) run(ctx context.Context) {
	for retry.Sleep(ctx, j.opt.sweepEvery/2+rand.N(j.opt.sweepEvery/2)) == nil {
		j.sweep(ctx)
	}
}

// last sweeps once more.
func (j *janitor) last(ctx context.Context) {
	if j.opt.KeepDelivered {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastSweep)
	defer cancel()
	j.sweep(ctx)
}

// await waits for a deletion that is under way, before a log is read whose offsets may be given out again.
func (j *janitor) await() {
	j.deleting.Lock()
	defer j.deleting.Unlock()
}

// sweep deletes all records before the low watermarks.
func (j *janitor) sweep(ctx context.Context) {
	of := map[partition]*source{}
	for _, s := range j.sources() {
		if s.from != delivery.FromIngress { // those records are not pacer's to delete
			of[s.partition] = s
		}
	}
	begins, err := j.opt.Client.Offsets(ctx, broker.Earliest, slices.Collect(maps.Keys(of))...)
	if err != nil {
		j.opt.Logger.Debug("the first offsets of lanes and timers cannot be read; trying again later", "error", err)
	}
	topics := map[string]delivery.TopicID{}
	for at := range of {
		if _, asked := topics[at.Topic]; asked {
			continue
		}
		if topics[at.Topic], err = j.opt.Client.IdentityOf(ctx, at); err != nil {
			j.opt.Logger.Debug("the id of a topic cannot be read; trying again later", "topic", at.Topic, "error", err)
			maps.DeleteFunc(begins, func(other partition, _ int64) bool { return other.Topic == at.Topic })
		}
	}
	j.deleting.Lock()
	defer j.deleting.Unlock()
	due := map[partition]int64{}
	for at, begin := range begins {
		if low := of[at].lowWatermark(topics[at.Topic]); low > begin {
			due[at] = low
		}
	}
	if len(due) > 0 {
		j.remove(ctx, due, begins)
	}
}

// remove asks for everything from where the partitions begin to the offsets to be removed.
func (j *janitor) remove(ctx context.Context, before, begins map[partition]int64) {
	worked := false   // for some partition
	var refusal error // of a broker that will go on refusing
	for at, deleted := range j.opt.Client.DeleteRecords(ctx, before) {
		switch {
		case deleted.Err == nil:
			worked = true
			j.metrics.deleted.Add(float64(max(0, deleted.Low-begins[at])))
		case broker.Refused(deleted.Err):
			refusal = fmt.Errorf("delete records of %s: %w", at, deleted.Err)
		default:
			j.opt.Logger.Debug("delivered records are not deleted yet", "topic", at.Topic, "partition", at.ID, "error", deleted.Err)
		}
	}
	if refusal != nil {
		if j.refusals.Failed() {
			j.opt.Logger.Warn("kafka refuses to delete delivered records; lanes and timers grow until it accepts",
				"error", refusal, "remedy", "allow Delete on the topics that pacer owns")
		}
	} else if worked {
		if _, over := j.refusals.Worked(); over {
			j.opt.Logger.Info("kafka deletes delivered records again")
		}
	}
}
