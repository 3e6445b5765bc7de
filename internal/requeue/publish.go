package requeue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// Defaults of ProducerOptions.
const (
	DefaultPublishInFlight = 8
	DefaultPublishLinger   = 20 * time.Millisecond
	DefaultPublishPatience = 30 * time.Second

	publishBuffer = 16 << 20 // bytes read and not yet acknowledged, over all partitions
)

// ProducerOptions of a Producer. Zero values stand for the defaults.
type ProducerOptions struct {
	Client   *kafka.Client
	InFlight int           // produce calls at once, at most one per partition; 8
	Linger   time.Duration // how long a record waits for others to share its batch; 20 ms
	Patience time.Duration // how long a batch is tried again before Publish gives up; 30 s
	// Oversize, if set, is given each record that is larger than its topic takes, one at a time, and Publish goes on
	// without it; else Publish fails.
	Oversize func(Record)
}

// Producer publishes jobs for the command line: batches of at most 500 records and 512 KiB, acks=all, several in
// flight. A batch whose answer was lost is sent again, so a record may be written twice; its job id tells. Safe
// for concurrent use.
type Producer struct {
	opts   ProducerOptions
	broker *broker
}

// NewProducer makes a producer. It does no I/O.
func NewProducer(opts ProducerOptions) (*Producer, error) {
	if opts.InFlight == 0 {
		opts.InFlight = DefaultPublishInFlight
	}
	if opts.Linger == 0 {
		opts.Linger = DefaultPublishLinger
	}
	if opts.Patience == 0 {
		opts.Patience = DefaultPublishPatience
	}
	if opts.InFlight < 1 || opts.Linger < 0 || opts.Patience < 0 {
		return nil, errors.New("publish: in flight, linger and patience must be positive")
	}
	b, err := newBroker(opts.Client)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return &Producer{opts: opts, broker: b}, nil
}

// All makes a sequence for Publish of records in memory.
func All(records []Record) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Publish writes the records to the topic, round-robin over its partitions and in order within each. onAck, if
// set, is called after each acknowledged batch with its size, by one goroutine at a time. Publish returns how
// many records were acknowledged, and the first error: of the sequence, of ctx, or of a broker that refuses for
// longer than the patience. It reads ahead of the broker by 16 MiB at most.
func (p *Producer) Publish(ctx context.Context, topic string, records iter.Seq2[Record, error], onAck func(n int)) (acked int64, err error) {
	n, err := p.broker.partitions(ctx, topic)
	if errors.Is(err, ErrNoTopic) {
		err = fmt.Errorf("%w; create it, pacer never makes one that jobs are published to", err)
	}
	if err != nil {
		return 0, fmt.Errorf("publish: %w", err)
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return p.publish(ctx, topic, ids, records, onAck)
}

// PublishTo is Publish to one partition of the topic.
func (p *Producer) PublishTo(
	ctx context.Context, topic string, id int, records iter.Seq2[Record, error], onAck func(n int),
) (acked int64, err error) {
	return p.publish(ctx, topic, []int{id}, records, onAck)
}

func (p *Producer) publish(
	ctx context.Context, topic string, ids []int, records iter.Seq2[Record, error], onAck func(n int),
) (acked int64, err error) {
	group, ctx := errgroup.WithContext(ctx)
	run := &publication{
		producer: p, topic: topic, onAck: onAck,
		room: semaphore.NewWeighted(publishBuffer), calls: semaphore.NewWeighted(int64(p.opts.InFlight)),
	}
	lines := make([]chan Record, len(ids))
	for i, id := range ids {
		lines[i] = make(chan Record, maxBatchJobs)
		group.Go(func() error { return run.write(ctx, id, lines[i]) })
	}
	readErr := run.read(ctx, records, lines)
	for _, line := range lines {
		close(line)
	}
	err = group.Wait()
	if err == nil {
		err = readErr
	}
	if err != nil {
		err = fmt.Errorf("publish to %s: %w", topic, err)
	}
	return run.acked, err
}

// publication is one call of Publish.
type publication struct {
	producer *Producer
	topic    string
	room     *semaphore.Weighted // bytes
	calls    *semaphore.Weighted

	mu    sync.Mutex // serialises onAck and Oversize
	acked int64
	onAck func(n int)
}

// read deals the records out to the partitions.
func (u *publication) read(ctx context.Context, records iter.Seq2[Record, error], lines []chan Record) error {
	next := 0
	for r, err := range records {
		if err != nil {
			return err
		}
		if err := u.room.Acquire(ctx, roomFor(r)); err != nil {
			return err
		}
		select {
		case lines[next] <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
		next = (next + 1) % len(lines)
	}
	return nil
}

// write sends what is dealt to one partition, one batch after the other.
func (u *publication) write(ctx context.Context, id int, line <-chan Record) error {
	to := partition{topic: u.topic, id: id}
	var first *Record // did not fit the batch before
	for {
		batch, left, open := u.collect(ctx, first, line)
		first = left
		if len(batch) > 0 {
			if err := u.send(ctx, to, batch); err != nil {
				return err
			}
		}
		if !open && first == nil {
			return ctx.Err()
		}
	}
}

// collect gathers a batch: full, or complete because nothing came for the linger time or the line was closed. A
// record that does not fit is left for the next batch.
func (u *publication) collect(ctx context.Context, first *Record, line <-chan Record) (batch []Record, left *Record, open bool) {
	bytes := 0
	if first != nil {
		batch, bytes = append(batch, *first), publishedSize(*first)
	}
	var due <-chan time.Time
	for len(batch) < maxBatchJobs {
		if len(batch) > 0 && due == nil {
			timer := time.NewTimer(u.producer.opts.Linger)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case r, ok := <-line:
			if !ok {
				return batch, nil, false
			}
			size := publishedSize(r)
			if len(batch) > 0 && bytes+size > DefaultMaxBatchBytes {
				return batch, &r, true
			}
			batch, bytes = append(batch, r), bytes+size
		case <-due:
			return batch, nil, true
		case <-ctx.Done():
			return nil, nil, false
		}
	}
	return batch, nil, true
}

// send writes a batch, again and again while the broker may change its mind, and in halves where it is too large.
func (u *publication) send(ctx context.Context, to partition, batch []Record) error {
	if err := u.calls.Acquire(ctx, 1); err != nil {
		return err
	}
	defer u.calls.Release(1)
	pending := [][]Record{batch}
	deadline := time.Now().Add(u.producer.opts.Patience)
	for failures := 0; len(pending) > 0; {
		records := pending[0]
		rb := &recordBatch{to: to, records: toKafka(records)}
		u.producer.broker.send(ctx, []*recordBatch{rb})
		switch {
		case rb.err == nil:
			pending, failures = pending[1:], 0
			deadline = time.Now().Add(u.producer.opts.Patience)
			u.ack(records)
		case tooLarge(rb.err) && len(records) == 1 && u.producer.opts.Oversize != nil:
			pending, failures = pending[1:], 0
			u.leaveOut(records[0])
		case tooLarge(rb.err) && len(records) == 1:
			return fmt.Errorf("a record of %d bytes is larger than the topic takes (max.message.bytes): %w",
				publishedSize(records[0]), rb.err)
		case tooLarge(rb.err):
			half := len(records) / 2
			pending = slices.Insert(pending[1:], 0, records[:half], records[half:])
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return rb.err
		default:
			if err := pause(ctx, min(firstBackoff<<failures, DefaultMaxBackoff)); err != nil {
				return err
			}
			failures = min(failures+1, 10)
		}
	}
	return nil
}

func (u *publication) ack(records []Record) {
	bytes := int64(0)
	for _, r := range records {
		bytes += roomFor(r)
	}
	u.room.Release(bytes)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.acked += int64(len(records))
	if u.onAck != nil {
		u.onAck(len(records))
	}
}

func (u *publication) leaveOut(r Record) {
	u.room.Release(roomFor(r))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.producer.opts.Oversize(r)
}

func toKafka(records []Record) []kafka.Record {
	out := make([]kafka.Record, len(records))
	for i, r := range records {
		out[i] = kafka.Record{Key: kafka.NewBytes(r.Key), Value: kafka.NewBytes(r.Value)}
		if len(r.Headers) > 0 {
			out[i].Headers = make([]kafka.Header, len(r.Headers))
		}
		for k, h := range r.Headers {
			out[i].Headers[k] = kafka.Header{Key: h.Key, Value: h.Value}
		}
	}
	return out
}

// publishedSize is how many bytes a record takes in a batch, at most.
func publishedSize(r Record) int {
	n := 64 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 12 + len(h.Key) + len(h.Value)
	}
	return n
}

// roomFor is a record's share of the read-ahead; the largest takes all of it.
func roomFor(r Record) int64 { return min(int64(publishedSize(r)), publishBuffer) }
