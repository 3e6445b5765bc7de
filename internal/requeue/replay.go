package requeue

import (
	"context"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// ReplayOptions says which dead letters to replay, and where to.
type ReplayOptions struct {
	Client *kafka.Client
	Prefix string // of the owned topics; "pacer."
	// Ingress lists the ingress topics: a letter goes back to the one it came from, or else to the first.
	Ingress []string
	DeadFilter
	Limit  int  // at most so many matching letters; 0: all
	DryRun bool // count, write nothing
	// DropExpiry replays letters whose expiry has passed, too, and takes the expiry off those.
	DropExpiry bool
	// Progress, if set, is told after each batch how many have been written so far.
	Progress func(replayed int)
}

// ReplayReport counts what a replay did, or, with DryRun, would do.
type ReplayReport struct {
	Matched   int            // letters selected
	Replayed  int            // written back and acknowledged; with DryRun, that would be
	Truncated int            // left out: only a part of the payload was kept
	Expired   int            // left out: the job's expiry has passed
	Topics    map[string]int // Replayed by topic
}

// replayBatch bounds how many letters are held before they are written.
const (
	replayBatch      = 500
	replayBatchBytes = 4 << 20
)

// Replay writes the matching dead letters back onto ingress topics as new jobs: with their ids, so that a
// destination that has seen one can tell, but without attempts, hops, reason and origin (a lane would take a
// known origin for a repetition). The dead letters stay where they are: replaying twice sends twice. On an error
// the report counts what was acknowledged before it.
func Replay(ctx context.Context, opts ReplayOptions) (ReplayReport, error) {
	r := replay{opts: opts, report: ReplayReport{Topics: make(map[string]int)}, pending: make(map[string][]Record)}
	if len(opts.Ingress) == 0 {
		return r.report, errNoIngress
	}
	var err error
	if r.producer, err = NewProducer(ProducerOptions{Client: opts.Client}); err != nil {
		return r.report, err
	}
	list := DeadOptions{Client: opts.Client, Prefix: opts.Prefix, DeadFilter: opts.DeadFilter, Limit: opts.Limit}
	now := time.Now()
	err = ListDead(ctx, list, func(d DeadLetter) error { return r.add(ctx, d, now) })
	if err == nil {
		err = r.flush(ctx)
	}
	return r.report, err
}

type replay struct {
	opts     ReplayOptions
	producer *Producer
	report   ReplayReport
	pending  map[string][]Record // by topic
	count    int                 // in pending
	bytes    int
}

func (r *replay) add(ctx context.Context, d DeadLetter, now time.Time) error {
	r.report.Matched++
	expired := !d.ExpiresAt.IsZero() && !now.Before(d.ExpiresAt)
	switch {
	case d.Truncated > 0:
		r.report.Truncated++
		return nil
	case expired && !r.opts.DropExpiry:
		r.report.Expired++
		return nil
	}
	topic := r.opts.Ingress[0]
	if slices.Contains(r.opts.Ingress, d.Origin.Topic) {
		topic = d.Origin.Topic
	}
	if r.opts.DryRun {
		r.report.Replayed++
		r.report.Topics[topic]++
		return nil
	}
	record := Record{Key: d.Key, Value: d.Payload, Headers: newLife(d.Headers, expired)}
	r.pending[topic] = append(r.pending[topic], record)
	r.count++
	r.bytes += publishedSize(record)
	if r.count >= replayBatch || r.bytes >= replayBatchBytes {
		return r.flush(ctx)
	}
	return nil
}

// flush writes what is pending.
func (r *replay) flush(ctx context.Context) error {
	for topic, records := range r.pending {
		acked, err := r.producer.Publish(ctx, topic, All(records), nil)
		r.report.Replayed += int(acked)
		r.report.Topics[topic] += int(acked)
		if err != nil {
			return err
		}
		delete(r.pending, topic)
	}
	r.count, r.bytes = 0, 0
	if r.opts.Progress != nil {
		r.opts.Progress(r.report.Replayed)
	}
	return nil
}

// newLife leaves out the headers that tell of the job's former life.
func newLife(headers []delivery.Header, dropExpiry bool) []delivery.Header {
	return slices.DeleteFunc(slices.Clone(headers), func(h delivery.Header) bool {
		return slices.Contains(bookkeeping, h.Key) || dropExpiry && h.Key == delivery.HeaderExpiresAt
	})
}
