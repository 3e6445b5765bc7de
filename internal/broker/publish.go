package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	defaultLinger   = 20 * time.Millisecond
	publishPatience = 30 * time.Second // how long batches are retried before Publish gives up
	readerGrace     = time.Second      // how long a publication that has failed waits for its sequence, which may wait for standard input

	maxBatchRecords = 500
	maxBatchBytes   = 512 << 10
)

// ProducerOptions of a Producer. Client is required.
type ProducerOptions struct {
	Client *Client
	Linger time.Duration // how long a record waits for others to share its batch; 20 ms
	// Compress writes batches with zstd; see Writer.
	Compress bool
	// Oversize, if set, is called with each record that is larger than its topic accepts, and Publish continues
	// without it. Without Oversize, Publish fails.
	Oversize func(delivery.Record)
	// Round, if set, is called where the acknowledged records are exactly the first ones of the sequence, with their
	// number. Its error ends Publish. Not together with Oversize.
	Round func(acked int64) error
}

// Producer publishes records for the command line: at most one batch per partition at a time, of 500 records, or as many as
// exceed 512 KiB, acks=all. A batch whose answer was lost is sent again, so a record may be written twice, with the same job id.
// Safe for concurrent use.
type Producer struct{ opts ProducerOptions }

// NewProducer makes a producer. It does no I/O.
func NewProducer(opts ProducerOptions) *Producer {
	opts.Linger = cmp.Or(opts.Linger, defaultLinger)
	return &Producer{opts}
}

// All returns a sequence of records for Publish.
func All(records []delivery.Record) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Publish writes the records to the topic, round-robin over its partitions and in order within each. onAck, if set, is
// called after each acknowledged batch with its size, always by the same goroutine. Publish returns the number of
// acknowledged records and the first error: of the sequence, of ctx, or of a broker that refuses for 30 s. It holds
// one batch per partition in memory. After an error, it does not wait for a sequence that waits itself: that ends with its next record.
func (p *Producer) Publish(ctx context.Context, topic string, records iter.Seq2[delivery.Record, error], onAck func(n int)) (acked int64, err error) {
	to, err := p.opts.Client.PartitionsOf(ctx, topic)
	if errors.Is(err, ErrNoTopic) {
		err = fmt.Errorf("%w; create it, pacer never makes one that jobs are published to", err)
	}
	if err != nil {
		return 0, fmt.Errorf("publish: %w", err)
	}
	return p.PublishTo(ctx, to, records, onAck)
}

// PublishTo is Publish to some partitions of a topic, at least one.
func (p *Producer) PublishTo(
	ctx context.Context, to []Partition, records iter.Seq2[delivery.Record, error], onAck func(n int),
) (acked int64, err error) {
	u := &publication{ProducerOptions: p.opts, to: to, onAck: onAck, line: make(chan delivery.Record)}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var readErr error
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(u.line)
		readErr = u.read(reading, records)
	}()
	if err = u.run(ctx); err == nil {
		<-read
		err = readErr
	} else {
		stop()
		select {
		case <-read:
		case <-time.After(readerGrace):
		}
	}
	if err != nil {
		err = fmt.Errorf("publish to %s: %w", to[0].Topic, err)
	}
	return u.acked, err
}

// publication is one call of Publish.
type publication struct {
	ProducerOptions
	to    []Partition
	onAck func(n int)
	line  chan delivery.Record

	// Owned by the goroutine of the writer.
	next  int // partition of the next record
	acked int64
}

// read passes the records to the writer.
func (u *publication) read(ctx context.Context, records iter.Seq2[delivery.Record, error]) error {
	for r, err := range records {
		if err != nil {
			return err
		}
		select {
		case u.line <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// run writes the records, round by round.
func (u *publication) run(ctx context.Context) error {
	for open := true; open; {
		var chunks []Chunk[delivery.Record]
		chunks, open = u.collect(ctx)
		chunks = slices.DeleteFunc(chunks, func(c Chunk[delivery.Record]) bool { return len(c.Items) == 0 })
		if err := u.write(ctx, chunks); err != nil {
			return err
		}
		if u.Round != nil {
			if err := u.Round(u.acked); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// collect distributes records to the partitions until one of them has a full batch, the linger time is over, or the channel is closed. A
// closed channel makes open false.
func (u *publication) collect(ctx context.Context) (chunks []Chunk[delivery.Record], open bool) {
	chunks, bytes := make([]Chunk[delivery.Record], len(u.to)), make([]int, len(u.to))
	for i, at := range u.to {
		chunks[i].To = at
	}
	var due <-chan time.Time
	for {
		select {
		case r, ok := <-u.line:
			if !ok {
				return chunks, false
			}
			c, size := &chunks[u.next], &bytes[u.next]
			c.Items, *size = append(c.Items, r), *size+RecordSize(r)
			u.next = (u.next + 1) % len(chunks)
			if len(c.Items) == maxBatchRecords || *size >= maxBatchBytes {
				return chunks, true
			}
			if due == nil {
				due = time.After(u.Linger)
			}
		case <-due:
			return chunks, true
		case <-ctx.Done():
			return chunks, false
		}
	}
}

var publishBackoff = retry.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second}

// write sends the collected batches, and retries as long as the broker may accept them.
func (u *publication) write(ctx context.Context, chunks []Chunk[delivery.Record]) error {
	var last, fatal error
	var failed []Chunk[delivery.Record]
	failures, deadline := 0, time.Now().Add(publishPatience)
	w := &Writer[delivery.Record]{
		Client: u.Client, Compress: u.Compress,
		Encode: func(r delivery.Record, _ time.Time) delivery.Record { return r },
		Begin:  func(int) bool { return fatal == nil },
		Acked: func(records []delivery.Record) {
			failures, deadline = 0, time.Now().Add(publishPatience)
			u.acked += int64(len(records))
			if u.onAck != nil {
				u.onAck(len(records))
			}
		},
		Failed: func(c Chunk[delivery.Record], err error) { failed, last = append(failed, c), err },
		TooLarge: func(_ Partition, r delivery.Record, err error) *Chunk[delivery.Record] {
			if u.Oversize != nil {
				u.Oversize(r)
			} else {
				fatal = fmt.Errorf("a record of %d bytes (job %s) is larger than the topic takes (max.message.bytes): %w",
					RecordSize(r), r.Header(delivery.HeaderJobID), err)
			}
			return nil
		},
	}
	for len(chunks) > 0 {
		failed = nil
		left := w.Write(ctx, chunks)
		chunks = append(failed, left...)
		switch {
		case fatal != nil:
			return fatal
		case len(chunks) == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return last
		}
		failures++
		if err := retry.Sleep(ctx, publishBackoff.Delay(failures)); err != nil {
			return err
		}
	}
	return nil
}

// RecordSize returns the largest number of bytes that a record takes in a batch.
func RecordSize(r delivery.Record) int {
	n := 64 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 12 + len(h.Key) + len(h.Value)
	}
	return n
}
