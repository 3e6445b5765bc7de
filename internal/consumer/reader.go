package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	maxFetchBytes   = 256 << 10
	minFetchBytes   = 16 << 10
	timerFetchBytes = 32 << 10
	longPoll        = 500 * time.Millisecond // how long a fetch from ingress waits for data
	shortPoll       = 50 * time.Millisecond  // the same where data is known to be
	offerJobs       = 500                    // jobs handed over at once
	stuckAfter      = time.Second            // how often a full window asks again to be relieved
)

// shared is what all readers of a consumer have in common.
type shared struct {
	handler   Handler
	fetcher   *fetcher
	client    *kafka.Client
	budget    *budget
	metrics   *metrics
	health    *health
	log       *slog.Logger
	origins   *originTopics
	steps     *steps
	state     *watchState
	maxWeight int64
	maxOpen   int64
	blockers  *blockers
}

// read fetches once, within the budget, and collects the records. It returns the context's error, or the fetch's after a
// pause; what was collected before an error is valid.
func (d *shared) read(ctx context.Context, r fetchRequest, place delivery.Place, visit func(*protocol.Record) error) (fetched, error) {
	d.steps.begin(r.partition.String(), "a fetch to end")
	out, err := d.fetcher.fetch(ctx, r, visit)
	d.steps.end(r.partition.String())
	name := placeNames[place]
	result := resultOK
	switch {
	case err != nil && ctx.Err() != nil:
		return out, ctx.Err()
	case err != nil:
		result = resultError
	case out.records == 0:
		result = resultEmpty
	}
	d.metrics.fetches.WithLabelValues(name, result).Inc()
	d.metrics.records.WithLabelValues(name).Add(float64(out.records))
	if err == nil {
		d.health.ok(r.partition.String())
	}
	return out, err
}

// copyRecord copies the record out of the fetch buffers.
func copyRecord(at partition, r *protocol.Record) (*record, error) {
	key, err := protocol.ReadAll(r.Key)
	if err != nil {
		return nil, fmt.Errorf("read key of %s/%d: %w", at, r.Offset, err)
	}
	value, err := protocol.ReadAll(r.Value)
	if err != nil {
		return nil, fmt.Errorf("read value of %s/%d: %w", at, r.Offset, err)
	}
	return &record{
		topic: at.topic, partition: at.id, offset: r.Offset, time: r.Time, key: key, value: value, headers: r.Headers,
	}, nil
}

// job decodes the record into a job of the source.
func (d *shared) job(r *record, from delivery.Place, src delivery.Source, now time.Time) *delivery.Job {
	j := decode(r, from, d.maxWeight, now)
	j.Source = src
	if j.Defect != "" {
		d.metrics.defects.WithLabelValues(string(j.Defect)).Inc()
	}
	return j
}

// offer hands jobs over until the handler takes the call, and returns those that it refused. An error of the handler
// means that it took none of them, and is retried; the error returned is the context's.
func (d *shared) offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	name := jobs[0].Source.Name()
	d.steps.begin(name, "the handler to take the jobs it is offered")
	defer d.steps.end(name)
	var wait backoff
	for {
		refused, err = d.handler.Offer(ctx, jobs)
		if err == nil {
			return refused, nil
		}
		d.log.Debug("jobs are not taken yet", "jobs", len(jobs), "error", err)
		if err = wait.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// bounds asks the broker for the first and the last offset of a partition.
func (d *shared) bounds(ctx context.Context, at partition) (first, end int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchGrace)
	defer cancel()
	answer, err := d.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		at.topic: {kafka.FirstOffsetOf(at.id), kafka.LastOffsetOf(at.id)},
	}})
	if err != nil {
		return 0, 0, fmt.Errorf("list offsets of %s: %w", at, err)
	}
	for _, p := range answer.Topics[at.topic] {
		if p.Partition != at.id {
			continue
		}
		if p.Error != nil {
			return 0, 0, fmt.Errorf("list offsets of %s: %w", at, p.Error)
		}
		return p.FirstOffset, p.LastOffset, nil
	}
	return 0, 0, fmt.Errorf("list offsets of %s: no answer for it", at)
}

// failed deals with the error of a fetch: it notes it and pauses, or, when the offset is out of range, calls reset with
// the bounds of what there is. It returns an error only when the context has ended.
func (d *shared) failed(ctx context.Context, at partition, err error, wait *backoff, reset func(first, end int64)) error {
	if errors.Is(err, kafka.OffsetOutOfRange) {
		var first, end int64
		if first, end, err = d.bounds(ctx, at); err == nil {
			reset(first, end)
		}
	}
	if err != nil && ctx.Err() == nil {
		d.health.fail(at.String(), err)
	}
	return wait.pause(ctx)
}

// outOfRange tells a person that records of a partition are gone, or that its topic was made anew.
func (d *shared) outOfRange(at partition, wanted, first, end int64) {
	d.metrics.resets.Inc()
	d.log.Error("the offset to go on from is not in the log; reading from the earliest record there is",
		"partition", at.String(), "offset", wanted, "earliest", first, "end", end)
}
