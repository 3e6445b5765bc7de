package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/pacer/pacer/internal/delivery"
)

// Chunk is a sequence of items for one partition: at most one batch.
type Chunk[T any] struct {
	To    Partition
	Items []T
}

// Writer writes items in batches and reports the outcome of each. A chunk that is too large is halved until only the offending items are
// left. Items acknowledged before an error stay written. After a failure in a partition nothing more is written there, so its order is
// kept. Client, Encode, Acked and Failed are required. All functions are called by the goroutine of Write.
type Writer[T any] struct {
	Client *Client
	// Encode returns the record of an item, written at now, which need not be valid after the next call.
	Encode func(item T, now time.Time) delivery.Record
	// Compress writes batches with zstd. The limits of topics are of compressed bytes, so a record that was written
	// compressed has to be, wherever else it is written.
	Compress bool
	Aside    bool // batches are encoded beside others, but not on all processors (see aside)
	// Acked is called with items that all in-sync replicas have written. The caller may settle them from now on, and not before.
	Acked func(items []T)
	// Failed is called with a chunk that may have been written or not; NotWritten(err) tells.
	Failed func(c Chunk[T], err error)

	// Begin is called before each round of requests, with the number of items in it; false ends Write.
	Begin func(items int) bool
	// Sent is called with the duration of each round.
	Sent func(took time.Duration)
	// TooLarge is called with an item that is larger than its topic accepts. It returns what to write instead, or nil
	// if it has dealt with the item. Without TooLarge such an item has failed.
	TooLarge func(to Partition, item T, err error) *Chunk[T]
}

// Write writes the chunks in rounds, with at most one batch per partition each. It returns the chunks that were not
// sent: all from the round that Begin refused, and those behind a failure in their partition.
func (w *Writer[T]) Write(ctx context.Context, chunks []Chunk[T]) (left []Chunk[T]) {
	failed := map[Partition]bool{}
	for len(chunks) > 0 {
		round, rest, items := distinct(chunks)
		chunks = rest
		if w.Begin != nil && !w.Begin(items) {
			return append(append(left, round...), chunks...)
		}
		var smaller []Chunk[T]
		for i, b := range w.send(ctx, round) {
			c := round[i]
			switch {
			case b.err == nil:
				w.Acked(c.Items)
			case TooLarge(b.err) && len(c.Items) > 1:
				half := len(c.Items) / 2
				smaller = append(smaller, Chunk[T]{c.To, c.Items[:half]}, Chunk[T]{c.To, c.Items[half:]})
			case TooLarge(b.err) && w.TooLarge != nil:
				if instead := w.TooLarge(c.To, c.Items[0], b.err); instead != nil {
					smaller = append(smaller, *instead)
				}
			default:
				failed[c.To] = true
				w.Failed(c, b.err)
			}
		}
		next := append(smaller, chunks...) // halves precede what follows in their partition
		chunks = nil
		for _, c := range next {
			if failed[c.To] {
				left = append(left, c)
			} else {
				chunks = append(chunks, c)
			}
		}
	}
	return left
}

// send writes the chunks of a round and returns their outcomes in the same order.
func (w *Writer[T]) send(ctx context.Context, round []Chunk[T]) []*batch {
	now := time.Now()
	batches := make([]*batch, len(round))
	for i, c := range round {
		batches[i] = w.encode(ctx, c, now)
	}
	w.Client.send(ctx, batches)
	if w.Sent != nil {
		w.Sent(time.Since(now))
	}
	return batches
}

// encode returns the batch of a chunk.
func (w *Writer[T]) encode(ctx context.Context, c Chunk[T], now time.Time) *batch {
	if w.Aside {
		defer stepAside(ctx)()
	}
	e := beginBatch()
	defer e.end()
	for _, item := range c.Items {
		r := w.Encode(item, now)
		e.add(&r, now)
	}
	return &batch{to: c.To, set: e.set(w.Compress)}
}

// distinct splits off the chunks that one round can write: a request may contain a partition once.
func distinct[T any](chunks []Chunk[T]) (round, rest []Chunk[T], items int) {
	seen := make(map[Partition]bool, len(chunks))
	for _, c := range chunks {
		if seen[c.To] {
			rest = append(rest, c)
			continue
		}
		seen[c.To] = true
		round = append(round, c)
		items += len(c.Items)
	}
	return round, rest, items
}

// Bounds on one produce call. The broker's own wait for its replicas is shorter, so that its answer arrives before the
// call times out with an unknown outcome.
const (
	produceTimeout = 15 * time.Second
	ackTimeout     = 10 * time.Second
)

// batch is what one produce request writes to one partition: accepted or refused as a whole.
type batch struct {
	to  Partition
	set []byte // encoded, with its length before it; kafka-go may still read it when a call has failed
	err error  // set by send; nil: acknowledged by all in-sync replicas
}

// send writes the batches, at most one per partition, with acks=all: one request per leader, all at the same time. It
// returns when each batch has its err. It uses the transport rather than kafka.Client.Produce, which writes one
// partition per call: a batch of jobs of a hundred campaigns goes to a hundred lanes.
func (c *Client) send(ctx context.Context, batches []*batch) {
	to := make(map[Partition]*batch, len(batches))
	for _, b := range batches {
		to[b.to] = b
	}
	groups := c.byLeader(ctx, maps.Keys(to), func(at Partition, err error) { to[at].err = &unsent{err} })
	var wg sync.WaitGroup
	for leader, group := range groups {
		led := make([]*batch, len(group))
		for i, at := range group {
			led[i] = to[at]
		}
		wg.Go(func() { c.request(ctx, leader, led) })
	}
	wg.Wait()
	if slices.ContainsFunc(batches, func(b *batch) bool { return b.err != nil }) {
		c.forget()
	}
}

// request writes batches of partitions with the same leader, once it may.
func (c *Client) request(ctx context.Context, leader int, batches []*batch) {
	at := gate{produces, leader}
	var outcome map[Partition]error
	_, err := c.throttle.wait(ctx, at, false)
	if err != nil {
		err = &unsent{err}
	} else {
		within, cancel := context.WithTimeout(ctx, produceTimeout)
		defer cancel()
		var answer kafka.Response
		if answer, err = c.kafka.Transport.RoundTrip(within, c.kafka.Addr, produceRequest(batches)); err == nil {
			written := answer.(*produceapi.Response)
			outcome = outcomes(written)
			c.throttle.note(at, written.ThrottleTimeMs)
		}
	}
	for _, rb := range batches {
		refusal, answered := outcome[rb.to]
		switch {
		case err != nil:
			refusal = err
		case !answered:
			refusal = errors.New("the broker's answer leaves the partition out")
		}
		if refusal != nil {
			rb.err = fmt.Errorf("produce to %s: %w", rb.to, refusal)
		}
	}
}

func produceRequest(batches []*batch) *rawproduce.Request {
	req := &rawproduce.Request{Acks: int16(kafka.RequireAll), Timeout: int32(ackTimeout.Milliseconds())}
	for topic, list := range byTopic(batches, func(b *batch) (string, rawproduce.RequestPartition) {
		return b.to.Topic, rawproduce.RequestPartition{
			Partition: int32(b.to.ID), RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(b.set)},
		}
	}) {
		req.Topics = append(req.Topics, rawproduce.RequestTopic{Topic: topic, Partitions: list})
	}
	return req
}

// outcomes returns the error of each partition in the answer; nil for acknowledged.
func outcomes(answer *produceapi.Response) map[Partition]error {
	out := make(map[Partition]error)
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			err := codeError(p.ErrorCode)
			// A broker that is not the leader answers so at once, without an offset. A leader that is deposed while an appended batch
			// waits for the replicas answers so with the batch's offset.
			if errors.Is(err, kafka.NotLeaderForPartition) && p.BaseOffset >= 0 {
				err = fmt.Errorf("%w: %w", errAppended, err)
			}
			if err != nil && p.ErrorMessage != "" {
				err = fmt.Errorf("%w (%.500q)", err, p.ErrorMessage)
			}
			out[Partition{t.Topic, int(p.Partition)}] = err
		}
	}
	return out
}
