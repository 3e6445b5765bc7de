package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// fetchGrace is how long an answer may take beyond the wait that was asked for. It bounds a connection to a broker that
// has vanished without a word.
const fetchGrace = 10 * time.Second

// fetcher reads partitions. It speaks the protocol's own fetch message instead of kafka.Client.Fetch, which hides three
// things that are needed here: several partitions in one request (idle.go), the list of aborted transactions, and where
// control batches lie.
type fetcher struct {
	transport kafka.RoundTripper
	addr      net.Addr
}

// fetchRequest asks for the records of one partition from an offset on.
type fetchRequest struct {
	partition
	offset   int64
	maxBytes int64
	maxWait  time.Duration
}

// fetched is what a fetch found besides the records.
type fetched struct {
	next    int64 // the offset after the last one that the answer covers; the request's when it covers none
	end     int64 // the end of what may be read now: the last stable offset
	bytes   int64 // of keys, values and headers
	records int
}

// fetch reads records from the offset on and calls visit for each that a committed reader may see, in order. The
// record's key and value are valid during the call only. An error of visit ends the fetch; what it
// found then ends before the record that visit was called with.
func (f *fetcher) fetch(ctx context.Context, r fetchRequest, visit func(*protocol.Record) error) (fetched, error) {
	out := fetched{next: r.offset}
	response, err := f.roundTrip(ctx, []fetchRequest{r})
	if err != nil {
		return out, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return out, fmt.Errorf("fetch %s: the answer is for another partition", r.partition)
	}
	p := &response.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return out, fmt.Errorf("fetch %s at %d: %w", r.partition, r.offset, kafka.Error(p.ErrorCode))
	}
	out.end = readable(p)
	aborted := newAbortedReads(p.AbortedTransactions)
	var batches []protocol.RecordReader
	switch set := p.RecordSet.Records.(type) {
	case nil:
	case *protocol.RecordStream:
		batches = set.Records
	default:
		batches = []protocol.RecordReader{set}
	}
	for _, batch := range batches {
		if err = readBatch(batch, aborted, r.offset, &out, visit); err != nil {
			return out, err
		}
	}
	// Compaction can leave a batch without records, whose end kafka-go does not tell. It lies before the end of the
	// log and covers at least the offset asked for.
	if len(batches) > 0 && out.next == r.offset && r.offset < out.end {
		out.next++
	}
	return out, nil
}

// readable is the end of what a committed reader may read.
func readable(p *fetchapi.ResponsePartition) int64 {
	if p.LastStableOffset >= 0 {
		return min(p.LastStableOffset, p.HighWatermark)
	}
	return p.HighWatermark
}

// readBatch visits the records of one batch.
func readBatch(
	batch protocol.RecordReader, aborted *abortedReads, from int64, out *fetched, visit func(*protocol.Record) error,
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
			out.records++
			out.bytes += recordBytes(rec)
		}
		closeRecord(rec)
		if err != nil {
			return err
		}
		out.next = max(out.next, rec.Offset+1)
	}
}

// readControl passes over the markers that end transactions.
func readControl(batch *protocol.ControlBatch, aborted *abortedReads, out *fetched) error {
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
		out.next = max(out.next, rec.Offset+1)
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

// abortedReads tells which batches belong to transactions that were aborted: those of a producer from the first offset
// of its aborted transaction up to its abort marker. The broker lists the former; the log holds the latter.
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

// readCommitted is the isolation level: a producer's aborted transaction sends nothing.
const readCommitted = 1

// roundTrip sends one fetch for several partitions of one leader.
func (f *fetcher) roundTrip(ctx context.Context, requests []fetchRequest) (*fetchapi.Response, error) {
	first := requests[0]
	ctx, cancel := context.WithTimeout(ctx, first.maxWait+fetchGrace)
	defer cancel()
	message, err := f.transport.RoundTrip(ctx, f.addr, &fetchapi.Request{
		ReplicaID: -1, MaxWaitTime: int32(first.maxWait.Milliseconds()), MinBytes: 1, MaxBytes: int32(first.maxBytes),
		IsolationLevel: readCommitted, SessionID: 0, SessionEpoch: -1, Topics: requestTopics(requests),
	})
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", first.partition, err)
	}
	response, ok := message.(*fetchapi.Response)
	if !ok {
		return nil, fmt.Errorf("fetch %s: unexpected answer %T", first.partition, message)
	}
	if response.ErrorCode != 0 {
		return nil, fmt.Errorf("fetch %s: %w", first.partition, kafka.Error(response.ErrorCode))
	}
	return response, nil
}

// requestTopics groups the partitions by topic.
func requestTopics(requests []fetchRequest) []fetchapi.RequestTopic {
	var topics []fetchapi.RequestTopic
	for _, r := range requests {
		i := slices.IndexFunc(topics, func(t fetchapi.RequestTopic) bool { return t.Topic == r.topic })
		if i < 0 {
			i = len(topics)
			topics = append(topics, fetchapi.RequestTopic{Topic: r.topic})
		}
		topics[i].Partitions = append(topics[i].Partitions, fetchapi.RequestPartition{
			Partition: int32(r.id), CurrentLeaderEpoch: -1, FetchOffset: r.offset, LogStartOffset: -1,
			PartitionMaxBytes: int32(r.maxBytes),
		})
	}
	return topics
}
