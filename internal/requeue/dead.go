package requeue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// DeadLetter is a job that could not be delivered, as it lies in the topic of the dead letters.
type DeadLetter struct {
	Partition int
	Offset    int64
	At        time.Time // when it was written
	Campaign  string    // "" where the record did not tell
	JobID     string
	Reason    delivery.Reason
	Detail    string // one line
	Attempts  int
	Origin    delivery.Origin // zero where it is not known
	ExpiresAt time.Time
	// Truncated is the length of the whole payload where only its beginning was kept, else 0.
	Truncated int
	Replayed  bool // it has been published again
	Key       []byte
	Headers   []delivery.Header // all of them, pacer's own too
	Payload   []byte
}

// DeadFilter selects dead letters; empty fields select all.
type DeadFilter struct {
	Campaign string
	Reason   delivery.Reason
	JobID    string
	Since    time.Time // written then or later
	Until    time.Time // written before
}

func (f *DeadFilter) matches(d *DeadLetter) bool {
	return (f.Campaign == "" || f.Campaign == d.Campaign) && (f.Reason == "" || f.Reason == d.Reason) &&
		(f.JobID == "" || f.JobID == d.JobID) && !d.At.Before(f.Since) && (f.Until.IsZero() || d.At.Before(f.Until))
}

// DeadOptions says which dead letters to list.
type DeadOptions struct {
	Client *kafka.Client
	Prefix string // of the owned topics; "pacer."
	DeadFilter
	Limit int // at most so many; 0: all
	// Unmarked, if set, hears of a record among the replays that cannot be understood, and no letter is said to have been
	// replayed; else that is an error.
	Unmarked func(error)
}

// replays reads which letters have been replayed.
func (o *DeadOptions) replays(ctx context.Context) (replays, error) {
	done, err := readReplays(ctx, o.Client, o.Prefix)
	if errors.Is(err, errForeignNote) && o.Unmarked != nil {
		o.Unmarked(err)
		return nil, nil
	}
	return done, err
}

// ListDead yields the dead letters that match, oldest first as far as their partitions allow, up to those written
// before the call. It holds one fetch per partition in memory, however many there are. It ends with the first
// error that yield returns.
func ListDead(ctx context.Context, opts DeadOptions, yield func(DeadLetter) error) error {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	topic, n, err := deadPartitions(ctx, opts.Client, opts.Prefix)
	if err != nil {
		return err
	}
	done, err := opts.replays(ctx)
	if err != nil {
		return err
	}
	sources := make([]iter.Seq2[Record, error], n)
	for p := range sources {
		sources[p] = scanSince(ctx, opts.Client, partition{topic: topic, id: p}, opts.Since)
	}
	listed := 0
	for r, err := range merge(sources) {
		if err != nil {
			return err
		}
		d := readDead(r)
		if !opts.matches(&d) {
			continue
		}
		d.Replayed = done.covers(&d)
		if err := yield(d); err != nil {
			return err
		}
		if listed++; listed == opts.Limit {
			return nil
		}
	}
	return nil
}

// deadPartitions is the topic of the dead letters and how many partitions it has.
func deadPartitions(ctx context.Context, client *kafka.Client, prefix string) (topic string, n int, err error) {
	topic = DeadTopic(prefix)
	n, err = Partitions(ctx, client, topic)
	if errors.Is(err, ErrNoTopic) {
		err = fmt.Errorf("%w; run pacer migrate up", err)
	}
	return topic, n, err
}

// ErrNoLetter tells that there is no dead letter at a place.
var ErrNoLetter = errors.New("no dead letter lies there; it may have been removed with its retention")

// ReadDead reads the dead letter at a partition and offset, as ListDead gives them; filter and limit do not matter. The
// error is ErrNoLetter where there is none.
func ReadDead(ctx context.Context, opts DeadOptions, place DeadPlace) (DeadLetter, error) {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	topic, n, err := deadPartitions(ctx, opts.Client, opts.Prefix)
	if err != nil {
		return DeadLetter{}, err
	}
	if place.Partition < 0 || place.Partition >= n || place.Offset < 0 {
		return DeadLetter{}, fmt.Errorf("%s/%s: %w", topic, place, ErrNoLetter)
	}
	done, err := opts.replays(ctx)
	if err != nil {
		return DeadLetter{}, err
	}
	for r, err := range scan(ctx, opts.Client, topic, place.Partition, place.Offset) {
		if err != nil {
			return DeadLetter{}, err
		}
		if r.Offset != place.Offset {
			break // it is gone, and this is the next one
		}
		d := readDead(r)
		d.Replayed = done.covers(&d)
		return d, nil
	}
	return DeadLetter{}, fmt.Errorf("%s/%s: %w", topic, place, ErrNoLetter)
}

// DeadPlace is where a dead letter lies in the topic of the dead letters.
type DeadPlace struct {
	Partition int
	Offset    int64
}

// String is partition/offset.
func (p DeadPlace) String() string {
	return strconv.Itoa(p.Partition) + "/" + strconv.FormatInt(p.Offset, 10)
}

// Place is where the dead letter lies.
func (d *DeadLetter) Place() DeadPlace { return DeadPlace{Partition: d.Partition, Offset: d.Offset} }

// merge joins sequences that are each in the order of their record times.
func merge(sources []iter.Seq2[Record, error]) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		type head struct {
			record Record
			next   func() (Record, error, bool)
		}
		var heads []*head
		for _, s := range sources {
			next, stop := iter.Pull2(s)
			defer stop()
			r, err, ok := next()
			if err != nil {
				yield(Record{}, err)
				return
			}
			if ok {
				heads = append(heads, &head{record: r, next: next})
			}
		}
		for len(heads) > 0 {
			oldest := 0
			for i, h := range heads {
				if h.record.Time.Before(heads[oldest].record.Time) {
					oldest = i
				}
			}
			h := heads[oldest]
			if !yield(h.record, nil) {
				return
			}
			r, err, ok := h.next()
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !ok {
				heads = append(heads[:oldest], heads[oldest+1:]...)
			}
			h.record = r
		}
	}
}

// readDead reads what a dead letter's headers say. They were written by pacer, but a header of a record that
// could not be decoded may hold anything: what cannot be read is left zero.
func readDead(r Record) DeadLetter {
	d := DeadLetter{
		Partition: r.Partition, Offset: r.Offset, At: r.Time,
		Campaign: r.Header(delivery.HeaderCampaign), JobID: r.Header(delivery.HeaderJobID),
		Reason: delivery.Reason(r.Header(delivery.HeaderReason)), Detail: r.Header(delivery.HeaderDetail),
		Key: r.Key, Headers: r.Headers, Payload: r.Value,
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Header(delivery.HeaderEnqueuedAt)); err == nil {
		d.At = at
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Header(delivery.HeaderExpiresAt)); err == nil {
		d.ExpiresAt = at
	}
	d.Attempts, _ = strconv.Atoi(r.Header(delivery.HeaderAttempt))
	d.Truncated, _ = strconv.Atoi(r.Header(HeaderTruncated))
	d.Origin, _ = parseOrigin(r.Header(delivery.HeaderOrigin))
	return d
}
