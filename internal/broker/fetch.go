package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/pacer/pacer/internal/delivery"
)

// fetchGrace is how long an answer may take beyond the requested wait. It bounds the time lost on a connection to a
// broker that is gone.
const fetchGrace = 10 * time.Second

// FetchRequest asks for the records of one partition from an offset on.
type FetchRequest struct {
	Partition
	Offset   int64
	MaxBytes int64
	MaxWait  time.Duration
	// Uncommitted reads up to the high watermark instead of the last stable offset. Such a reader also sees the
	// records of aborted transactions.
	Uncommitted bool
	// After is the epoch of the record before Offset. If it is known, and the first record is of another epoch, Fetch reads
	// nothing and returns ErrNewEpoch: the record before may not be in the log any more (see EpochEnd).
	After Epoch
}

// Fetched is the result of a fetch besides the records.
type Fetched struct {
	Next    int64 // the offset after the last one that the answer covers; the request's when it covers none
	End     int64 // the end of the readable log: the last stable offset, or the high watermark
	Bytes   int64 // of keys, values and headers
	Records int
	Epoch   Epoch // of the last record that the answer covers; unknown if it covers none
}

// Raw is a record in the buffers of a fetch. It is valid until the function that it was passed to returns.
type Raw struct {
	at  Partition
	rec *protocol.Record
}

// RawOf wraps a record of kafka-go.
func RawOf(at Partition, rec *protocol.Record) Raw { return Raw{at, rec} }

// Offset returns the offset of the record.
func (r Raw) Offset() int64 { return r.rec.Offset }

// Header returns the value of the last header with that key.
func (r Raw) Header(key string) (value []byte, ok bool) {
	for _, h := range r.rec.Headers {
		if h.Key == key {
			value, ok = h.Value, true
		}
	}
	return value, ok
}

// Copy copies the record out of the buffers. It can be called once.
func (r Raw) Copy() (*delivery.Record, error) {
	key, err := protocol.ReadAll(r.rec.Key)
	if err != nil {
		return nil, fmt.Errorf("read key of %s/%d: %w", r.at, r.rec.Offset, err)
	}
	value, err := protocol.ReadAll(r.rec.Value)
	if err != nil {
		return nil, fmt.Errorf("read value of %s/%d: %w", r.at, r.rec.Offset, err)
	}
	headers := make([]delivery.Header, len(r.rec.Headers))
	for i, h := range r.rec.Headers {
		headers[i] = delivery.Header(h)
	}
	return &delivery.Record{
		Topic: r.at.Topic, Partition: r.at.ID, Offset: r.rec.Offset, Time: r.rec.Time, Key: key, Value: value, Headers: headers,
	}, nil
}

// Fetch reads records from the offset on and calls visit for each, in order. An error of visit ends the fetch; the
// result then ends before the record that visit was called with.
//
// It uses the protocol's fetch message instead of kafka.Client.Fetch, which hides three things that are needed here:
// several partitions in one request (see Poll), the list of aborted transactions, and the positions of control
// batches.
func (c *Client) Fetch(ctx context.Context, r FetchRequest, visit func(Raw) error) (Fetched, error) {
	out := Fetched{Next: r.Offset}
	response, err := c.fetch(ctx, []FetchRequest{r})
	if err != nil {
		return out, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return out, fmt.Errorf("fetch %s: the answer is for another partition", r.Partition)
	}
	p := &response.Topics[0].Partitions[0]
	if err := codeError(p.ErrorCode); err != nil {
		return out, fmt.Errorf("fetch %s at %d: %w", r.Partition, r.Offset, err)
	}
	out.End = readable(p)
	aborted := newAbortedReads(p.AbortedTransactions)
	var batches []protocol.RecordReader
	switch set := p.RecordSet.Records.(type) {
	case nil:
	case *protocol.RecordStream:
		batches = set.Records
	default:
		batches = []protocol.RecordReader{set}
	}
	if len(batches) > 0 && r.After != 0 && epochOf(batches[0]) != r.After {
		return out, fmt.Errorf("fetch %s at %d: %w", r.Partition, r.Offset, ErrNewEpoch)
	}
	for _, batch := range batches {
		out.Epoch = epochOf(batch)
		if err = readBatch(batch, aborted, r.Offset, &out, func(rec *protocol.Record) error { return visit(Raw{r.Partition, rec}) }); err != nil {
			return out, err
		}
	}
	// Compaction can leave a batch without records, whose end kafka-go does not report. It lies before the end of the
	// log and covers at least the requested offset.
	if len(batches) > 0 && out.Next == r.Offset && r.Offset < out.End {
		out.Next++
	}
	return out, nil
}

// readable returns the end of the log for a committed reader.
func readable(p *fetchapi.ResponsePartition) int64 {
	if p.LastStableOffset >= 0 {
		return min(p.LastStableOffset, p.HighWatermark)
	}
	return p.HighWatermark
}

// readBatch visits the records of one batch.
func readBatch(
	batch protocol.RecordReader, aborted *abortedReads, from int64, out *Fetched, visit func(*protocol.Record) error,
) error {
	if control, ok := batch.(*protocol.ControlBatch); ok {
		return readControl(control, aborted, out)
	}
	hidden := aborted.hides(batch)
	for {
		rec, err := batch.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read record: %w", err)
		}
		if rec.Offset >= from && !hidden {
			err = visit(rec)
			out.Records++
			out.Bytes += recordBytes(rec)
		}
		closeRecord(rec)
		if err != nil {
			return err
		}
		out.Next = max(out.Next, rec.Offset+1)
	}
}

// readControl skips the markers that end transactions.
func readControl(batch *protocol.ControlBatch, aborted *abortedReads, out *Fetched) error {
	for {
		rec, err := batch.ReadControlRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read control record: %w", err)
		}
		const abortMarker = 0
		if rec.Type == abortMarker {
			aborted.ended(batch.BaseOffset, batch.ProducerID)
		}
		out.Next = max(out.Next, rec.Offset+1)
	}
}

func closeRecord(r *protocol.Record) {
	if r.Key != nil {
		_ = r.Key.Close()
	}
	if r.Value != nil {
		_ = r.Value.Close()
	}
}

func recordBytes(r *protocol.Record) int64 {
	n := 16
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	if r.Key != nil {
		n += r.Key.Len()
	}
	if r.Value != nil {
		n += r.Value.Len()
	}
	return int64(n)
}

// abortedReads determines which batches belong to aborted transactions: those of a producer from the first offset of
// its aborted transaction up to its abort marker. The broker lists the former; the log holds the latter.
type abortedReads struct {
	coming []fetchapi.ResponseTransaction // by first offset
	active map[int64]bool                 // producers
}

func newAbortedReads(list []fetchapi.ResponseTransaction) *abortedReads {
	slices.SortFunc(list, func(a, b fetchapi.ResponseTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return &abortedReads{coming: list, active: map[int64]bool{}}
}

func (a *abortedReads) upTo(offset int64) {
	for len(a.coming) > 0 && a.coming[0].FirstOffset <= offset {
		a.active[a.coming[0].ProducerID] = true
		a.coming = a.coming[1:]
	}
}

func (a *abortedReads) hides(batch protocol.RecordReader) bool {
	b, ok := batch.(*protocol.RecordBatch)
	if !ok || !b.Attributes.Transactional() {
		return false
	}
	a.upTo(b.BaseOffset)
	return a.active[b.ProducerID]
}

func (a *abortedReads) ended(offset, producer int64) {
	a.upTo(offset)
	delete(a.active, producer)
}

// fetch sends one fetch for several partitions of one leader.
func (c *Client) fetch(ctx context.Context, requests []FetchRequest) (*fetchapi.Response, error) {
	first := requests[0]
	ctx, cancel := context.WithTimeout(ctx, first.MaxWait+fetchGrace)
	defer cancel()
	isolation := int8(1) // read committed
	if first.Uncommitted {
		isolation = 0
	}
	request := &fetchapi.Request{
		ReplicaID: -1, MaxWaitTime: int32(first.MaxWait.Milliseconds()), MinBytes: 1, MaxBytes: int32(first.MaxBytes),
		IsolationLevel: isolation, SessionID: 0, SessionEpoch: -1,
	}
	for topic, list := range byTopic(requests, func(r FetchRequest) (string, fetchapi.RequestPartition) {
		return r.Topic, fetchapi.RequestPartition{
			Partition: int32(r.ID), CurrentLeaderEpoch: -1, FetchOffset: r.Offset, LogStartOffset: -1,
			PartitionMaxBytes: int32(r.MaxBytes),
		}
	}) {
		request.Topics = append(request.Topics, fetchapi.RequestTopic{Topic: topic, Partitions: list})
	}
	response, err := ask[*fetchapi.Response](ctx, c, request)
	if err == nil {
		err = codeError(response.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", first.Partition, err)
	}
	return response, nil
}
