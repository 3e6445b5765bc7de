package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	scanMaxBytes = 1 << 20
	scanMaxWait  = 500 * time.Millisecond
	scanAttempts = 6 // at one position, without progress
)

var scanBackoff = retry.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second}

// Scan reads a partition from the offset from (or the earliest one after it) up to the high watermark at the time of
// the call, or to an open transaction, without a group. The caller owns the records. After repeated failures of a broker, the error is the last
// element.
func (c *Client) Scan(ctx context.Context, at Partition, from int64) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		s := &scanner{client: c, at: at, offset: max(0, from)}
		if err := s.run(ctx, func(r delivery.Record) bool { return yield(r, nil) }); err != nil {
			yield(delivery.Record{}, fmt.Errorf("read %s at offset %d: %w", at, s.offset, err))
		}
	}
}

// scanner walks one partition.
type scanner struct {
	client  *Client
	at      Partition
	offset  int64 // the next one to be read
	stopped bool  // the consumer of the sequence has stopped
}

// run yields records until the end, or until yield returns false.
func (s *scanner) run(ctx context.Context, yield func(delivery.Record) bool) error {
	ends, err := s.client.edge(ctx, s.at, Latest)
	if err != nil {
		return err
	}
	end, failures := ends[s.at], 0
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
		if err := retry.Sleep(ctx, scanBackoff.Delay(failures)); err != nil {
			return err
		}
	}
	return nil
}

var errScanned = errors.New("scanned")

// fetch sends one request and yields its records.
func (s *scanner) fetch(ctx context.Context, end int64, yield func(delivery.Record) bool) error {
	out, err := s.client.Fetch(ctx, FetchRequest{
		Partition: s.at, Offset: s.offset, MaxBytes: scanMaxBytes, MaxWait: scanMaxWait,
	}, func(rec *delivery.Record) error {
		if rec.Offset >= end {
			return errScanned
		}
		s.offset = rec.Offset + 1
		if s.stopped = !yield(Clone(rec)); s.stopped {
			return errScanned
		}
		return nil
	})
	switch {
	case err == nil:
		if s.offset = max(s.offset, out.Next); out.Hidden > 0 && s.offset >= out.End {
			s.offset = end // an open transaction hides the rest
		}
	case errors.Is(err, errScanned):
		if !s.stopped {
			s.offset = end // only markers lie between the last record and the end
		}
		return nil
	case OutOfRange(err):
		return s.skipDeleted(ctx, end)
	}
	return err
}

// skipDeleted moves on to the earliest record, after records were deleted during the scan.
func (s *scanner) skipDeleted(ctx context.Context, end int64) error {
	begins, err := s.client.edge(ctx, s.at, Earliest)
	if err != nil {
		return err
	}
	first := begins[s.at]
	if first <= s.offset { // beyond the end: records were lost with a leader
		first = end
	}
	s.offset = first
	return nil
}

// Clone copies a record out of the buffers of a fetch. Key, value and headers of the copy share one piece of memory.
func Clone(r *delivery.Record) delivery.Record {
	c, n := *r, len(r.Key)+len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Value)
	}
	memory := make([]byte, 0, n)
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(memory)
		memory = append(memory, b...)
		return memory[from:len(memory):len(memory)]
	}
	c.Key, c.Value, c.Headers = keep(r.Key), keep(r.Value), make([]delivery.Header, len(r.Headers))
	for i, h := range r.Headers {
		c.Headers[i] = delivery.Header{Key: h.Key, Value: keep(h.Value)}
	}
	return c
}
