package broker

import (
	"cmp"
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
		from = max(0, from)
		err := c.scan(ctx, at, &from, func(r *delivery.Record) bool { return yield(Clone(r), nil) })
		if err != nil && !errors.Is(err, errScanned) {
			yield(delivery.Record{}, fmt.Errorf("read %s at offset %d: %w", at, from, err))
		}
	}
}

// errScanned ends a scan: the last record was read, or yield returned false.
var errScanned = errors.New("scanned")

// scan moves next through a partition, until yield returns false or the end is reached.
func (c *Client) scan(ctx context.Context, at Partition, next *int64, yield func(*delivery.Record) bool) error {
	ends, err := c.edge(ctx, at, Latest)
	if err != nil {
		return err
	}
	for failures := 0; *next < ends[at]; {
		before := *next
		out, err := c.Fetch(ctx, FetchRequest{
			Partition: at, Offset: before, MaxBytes: scanMaxBytes, MaxWait: scanMaxWait,
		}, func(rec *delivery.Record) error {
			if rec.Offset >= ends[at] {
				return errScanned
			}
			*next = rec.Offset + 1
			if !yield(rec) {
				return errScanned
			}
			return nil
		})
		switch {
		case errors.Is(err, errScanned):
			return err
		case OutOfRange(err): // records were deleted meanwhile
			var begins map[Partition]int64
			if begins, err = c.edge(ctx, at, Earliest); err == nil && begins[at] <= *next {
				return nil // they were lost with a leader
			}
			*next = max(*next, begins[at])
		case err == nil:
			if *next = max(*next, out.Next); out.Hidden > 0 && *next >= out.End {
				return nil // an open transaction hides the rest
			}
		}
		if *next > before {
			failures = 0
			continue
		}
		if failures++; failures >= scanAttempts {
			return cmp.Or(err, errors.New("the broker answers without records"))
		}
		if err := retry.Sleep(ctx, scanBackoff.Delay(failures)); err != nil {
			return err
		}
	}
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
