package requeue

import (
	"context"
	"errors"
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
	Key       []byte
	Headers   []delivery.Header // all of them, pacer's own too
	Payload   []byte
}

// DeadFilter selects dead letters; empty fields select all.
type DeadFilter struct {
	Campaign string
	Reason   delivery.Reason
}

func (f DeadFilter) matches(d *DeadLetter) bool {
	return (f.Campaign == "" || f.Campaign == d.Campaign) && (f.Reason == "" || f.Reason == d.Reason)
}

// DeadOptions says which dead letters to list.
type DeadOptions struct {
	Client *kafka.Client
	Prefix string // of the owned topics; "pacer."
	DeadFilter
	Limit int // at most so many; 0: all
}

// ListDead yields the dead letters that match, oldest first as far as their partitions allow, up to those written
// before the call. It holds one fetch per partition in memory, however many there are. It ends with the first
// error that yield returns.
func ListDead(ctx context.Context, opts DeadOptions, yield func(DeadLetter) error) error {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	topic := DeadTopic(opts.Prefix)
	n, err := Partitions(ctx, opts.Client, topic)
	if err != nil {
		return err
	}
	sources := make([]iter.Seq2[Record, error], n)
	for p := range sources {
		sources[p] = scan(ctx, opts.Client, topic, p, FromStart)
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
		if err := yield(d); err != nil {
			return err
		}
		if listed++; listed == opts.Limit {
			return nil
		}
	}
	return nil
}

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

// errNoIngress tells that there is nowhere to replay to.
var errNoIngress = errors.New("replay: an ingress topic is required")
