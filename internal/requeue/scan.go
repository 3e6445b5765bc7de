package requeue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	scanMaxBytes = 1 << 20
	scanMaxWait  = 500 * time.Millisecond
	scanTimeout  = 15 * time.Second // of one request
	scanAttempts = 6                // of one position, without progress
)

// FromStart makes Scan begin with the earliest record there is.
const FromStart int64 = 0

// Record is a Kafka record. Scan fills every field; a Producer uses Key, Value and Headers.
type Record struct {
	Topic     string
	Partition int
	Offset    int64
	Time      time.Time
	Key       []byte
	Value     []byte
	Headers   []delivery.Header
}

// Header returns the value of the first header with that key, "" if there is none.
func (r Record) Header(key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Partitions returns how many partitions a topic has.
func Partitions(ctx context.Context, client *kafka.Client, topic string) (int, error) {
	b, err := newBroker(client)
	if err != nil {
		return 0, err
	}
	return b.partitions(ctx, topic)
}

// Scan reads a partition from the offset from (or the earliest one after it) up to the high watermark at the time
// of the call, outside any group, and yields each record; the record is the callee's. It ends with the first
// error that yield returns, or when the broker fails again and again.
func Scan(ctx context.Context, client *kafka.Client, topic string, partition int, from int64, yield func(Record) error) error {
	for r, err := range scan(ctx, client, topic, partition, from) {
		if err == nil {
			err = yield(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scan is Scan as an iterator; an error is its last element.
func scan(ctx context.Context, client *kafka.Client, topic string, partition int, from int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		s := &scanner{client: client, topic: topic, partition: partition, offset: max(0, from)}
		if err := s.run(ctx, func(r Record) bool { return yield(r, nil) }); err != nil {
			yield(Record{}, fmt.Errorf("read %s/%d at offset %d: %w", topic, partition, s.offset, err))
		}
	}
}

// scanSince is scan from the first record of a partition that was written at since or later.
func scanSince(ctx context.Context, client *kafka.Client, from partition, since time.Time) iter.Seq2[Record, error] {
	if since.IsZero() {
		return scan(ctx, client, from.topic, from.id, FromStart)
	}
	return func(yield func(Record, error) bool) {
		s := &scanner{client: client, topic: from.topic, partition: from.id}
		first, err := s.edge(ctx, since.UnixMilli())
		if err != nil {
			yield(Record{}, fmt.Errorf("find the time %s in %s/%d: %w", since.Format(time.RFC3339), from.topic, from.id, err))
			return
		}
		scan(ctx, client, from.topic, from.id, first)(yield)
	}
}

// scanner walks one partition.
type scanner struct {
	client    *kafka.Client
	topic     string
	partition int
	offset    int64 // the next one to be read
	stopped   bool  // by the reader
}

// run yields records until the end, or until yield returns false.
func (s *scanner) run(ctx context.Context, yield func(Record) bool) error {
	end, err := s.edge(ctx, kafka.LastOffset)
	if err != nil {
		return err
	}
	failures := 0
	for s.offset < end && !s.stopped {
		before := s.offset
		err := s.fetch(ctx, end, yield)
		if s.offset > before {
			failures = 0
			continue
		}
		if s.stopped {
			return nil
		}
		if failures++; failures >= scanAttempts {
			if err == nil {
				err = errors.New("the broker answers without records")
			}
			return err
		}
		if err := pause(ctx, firstBackoff<<failures); err != nil {
			return err
		}
	}
	return nil
}

// fetch makes one request and yields what it brings.
func (s *scanner) fetch(ctx context.Context, end int64, yield func(Record) bool) error {
	asking, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	answer, err := s.client.Fetch(asking, &kafka.FetchRequest{
		Topic: s.topic, Partition: s.partition, Offset: s.offset, MinBytes: 1, MaxBytes: scanMaxBytes, MaxWait: scanMaxWait,
	})
	if err == nil {
		err = answer.Error
	}
	if errors.Is(err, kafka.OffsetOutOfRange) {
		return s.skipDeleted(asking, end)
	}
	if err != nil {
		return err
	}
	start := s.offset
	for !s.stopped && s.offset < end {
		raw, err := answer.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		r, err := s.own(raw)
		if err != nil {
			return err
		}
		if r.Offset < s.offset {
			continue // a batch may begin before what was asked for
		}
		s.offset = r.Offset + 1
		s.stopped = r.Offset < end && !yield(r)
	}
	if s.offset == start && hasBatches(answer.Records) {
		s.offset++ // a control marker or a compacted batch: nothing to see at this offset
	}
	return nil
}

// skipDeleted moves on to the earliest record after some were deleted under the reader.
func (s *scanner) skipDeleted(ctx context.Context, end int64) error {
	first, err := s.edge(ctx, kafka.FirstOffset)
	if err != nil {
		return err
	}
	if first <= s.offset { // beyond the end: records were lost with a leader
		first = end
	}
	s.offset = first
	return nil
}

// edge returns the first offset of the partition, the one after its last, or that of its first record with a timestamp
// (milliseconds) at or after which; where there is none, the one after its last. A partition that is looking for its
// leader, as those of a new topic do, is asked again.
func (s *scanner) edge(ctx context.Context, which int64) (int64, error) {
	for attempt := 1; ; attempt++ {
		offset, err := s.ask(ctx, which)
		var code kafka.Error
		if err == nil || attempt == scanAttempts || !errors.As(err, &code) || !code.Temporary() {
			return offset, err
		}
		if err := pause(ctx, firstBackoff<<attempt); err != nil {
			return 0, err
		}
	}
}

// ask is edge, asked once.
func (s *scanner) ask(ctx context.Context, which int64) (int64, error) {
	answer, err := s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{s.topic: {{Partition: s.partition, Timestamp: which}}},
	})
	if err != nil {
		return 0, err
	}
	for _, p := range answer.Topics[s.topic] {
		if p.Partition != s.partition {
			continue
		}
		if p.Error != nil {
			return 0, p.Error
		}
		switch which {
		case kafka.FirstOffset:
			return p.FirstOffset, nil
		case kafka.LastOffset:
			return p.LastOffset, nil
		}
		for offset := range p.Offsets {
			return offset, nil
		}
		return s.ask(ctx, kafka.LastOffset)
	}
	return 0, ErrNoTopic
}

// own copies a record out of the response's memory and gives that back.
func (s *scanner) own(raw *kafka.Record) (Record, error) {
	r := Record{Topic: s.topic, Partition: s.partition, Offset: raw.Offset, Time: raw.Time}
	var err error
	if r.Key, err = readBytes(raw.Key); err != nil {
		return r, err
	}
	if r.Value, err = readBytes(raw.Value); err != nil {
		return r, err
	}
	for _, h := range raw.Headers {
		r.Headers = append(r.Headers, delivery.Header{Key: h.Key, Value: h.Value})
	}
	return r, nil
}

// readBytes returns nil for null and an empty slice for an empty value.
func readBytes(b kafka.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer b.Close()
	all, err := kafka.ReadAll(b)
	if err == nil && all == nil {
		all = []byte{}
	}
	return all, err
}

// hasBatches tells whether a response brought any batch, also one without records to see.
func hasBatches(r kafka.RecordReader) bool {
	stream, ok := r.(*protocol.RecordStream)
	return ok && len(stream.Records) > 0
}

// pause waits for d or for ctx to end.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
