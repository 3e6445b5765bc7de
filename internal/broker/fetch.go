package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
)

// fetchGrace is how long an answer may take beyond the requested wait. It bounds the time lost on a connection to a broker that is gone.
// The next fetch of the partition may take twice as long, up to maxFetchGrace: its disk may be slow.
const fetchGrace, maxFetchGrace = 3 * time.Second, 24 * time.Second

// littleBytes are what a fetch that yields asks for while the broker throttles.
const littleBytes = 32 << 10

// FetchRequest asks for the records of one partition from an offset on.
type FetchRequest struct {
	Partition
	Offset   int64
	MaxBytes int64
	MaxWait  time.Duration
	// Claimed is how many bytes of an answer the caller has memory for. Room, if set, is asked for the others, before they are read: a broker
	// sends one batch at least, however large. Without room, the error is a LargeAnswer. Room may be called by another goroutine, also
	// when Fetch has returned.
	Claimed int64
	Room    func(bytes int64) bool
	// Yields lets fetches that do not yield pass while the broker throttles. Throttled, if set, is called when the broker tells to wait.
	Yields    bool
	Throttled func()
	Brought   *Brought // if set, what is read instead of asking the broker
	Aside     bool     // records are visited beside others, but not on all processors (see aside); visit must not wait
}

// aside bounds how many goroutines decode or encode batches at a time. Each takes milliseconds, and there are as many as lanes. One processor
// is left to the jobs that are due: their goroutines need microseconds each, and would wait in the same run queue.
var aside = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))

// stepAside waits until a batch may be decoded or encoded, or ctx ends. Call back when that is done.
func stepAside(ctx context.Context) (back func()) {
	select {
	case aside <- struct{}{}:
		return func() { <-aside }
	case <-ctx.Done():
		return func() {}
	}
}

// Fetched is the result of a fetch besides the records.
type Fetched struct {
	Next    int64 // the offset after the last one that the answer covers; the request's when it covers none
	End     int64 // the end of the readable log: the last stable offset, or the high watermark
	Hidden  int64 // offsets from End on that an open transaction hides
	Bytes   int64 // of the records, decompressed
	Packed  int64 // of the batches that contain them, as the broker has sent them
	Answer  int64 // of the whole answer, without what surrounds the batches
	Records int
}

// LargeAnswer is the error of a fetch whose answer is larger than the caller has room for.
type LargeAnswer struct{ Bytes int64 }

func (e *LargeAnswer) Error() string {
	return fmt.Sprintf("there is no room for an answer of %d bytes", e.Bytes)
}

// answerFrame is more than an answer contains besides the batches.
const answerFrame = 4 << 10

// DefaultMaxRecordBytes is how large a record may be that is read.
const DefaultMaxRecordBytes = 16 << 20

// Fetch reads records from the offset on and calls visit for each, in order. An error of visit ends the fetch; the
// result then ends before the record that visit was called with. A record is in the buffers of the fetch: it is valid until visit returns.
//
// Records are decompressed one after the other. So memory is needed for one record (at most Options.MaxRecordBytes) and for the broker's
// answer: MaxBytes, or one batch if that is larger. A record above MaxRecordBytes comes without its content. The rest of a batch that
// cannot be read comes as one record. Both have a Flaw.
func (c *Client) Fetch(ctx context.Context, r FetchRequest, visit func(*delivery.Record) error) (Fetched, error) {
	out := Fetched{Next: r.Offset}
	p, free, err := c.read(ctx, r)
	if err != nil {
		return out, fmt.Errorf("fetch %s at %d: %w", r.Partition, r.Offset, err)
	}
	defer free()
	if r.Aside {
		defer stepAside(ctx)()
	}
	out.End, out.Answer = readable(p), int64(len(p.RecordBatches))
	out.Hidden = p.HighWatermark - out.End
	f := &fetching{
		at: r.Partition, from: r.Offset, limit: c.options.MaxRecordBytes, most: c.largestBatch(),
		aborted: newAbortedReads(p.AbortedTransactions), visit: visit, out: &out,
	}
	for set := recordSet(p.RecordBatches); ; {
		b, rest, ok, err := set.next()
		if err != nil {
			return out, fmt.Errorf("fetch %s at %d: %w", r.Partition, out.Next, err)
		}
		if !ok {
			return out, nil
		}
		if err = f.read(b); err != nil {
			return out, err
		}
		set = rest
	}
}

// read returns what the broker answers, once it does not throttle, or what was brought. Call free when it is not used any more.
func (c *Client) read(ctx context.Context, r FetchRequest) (p *kmsg.FetchResponseTopicPartition, free func(), err error) {
	if r.Brought != nil && r.Brought.Offset == r.Offset {
		return &r.Brought.answer, func() {}, nil
	}
	leader, err := c.leader(ctx, r.Partition)
	if err != nil {
		return nil, nil, err
	}
	if !r.Yields {
		defer c.throttle.hurry(gate{fetches, leader})()
	}
	response, free, err := c.fetch(ctx, leader, []FetchRequest{r})
	for err == nil && response.ThrottleMillis > 0 && len(response.Topics) == 0 { // the answer was kept back
		if r.Throttled != nil {
			r.Throttled()
		}
		response, free, err = c.fetch(ctx, leader, []FetchRequest{r})
	}
	if err != nil {
		return nil, nil, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return nil, nil, errors.New("the answer is for another partition")
	}
	p = &response.Topics[0].Partitions[0]
	if err = codeError(p.ErrorCode); err != nil {
		c.forget()
	}
	return p, free, err
}

// largestBatch bounds the bytes of a batch, and what it may decompress to.
func (c *Client) largestBatch() int64 { return max(minBatch, maxExpansion*c.options.MaxRecordBytes) }

// readable returns the end of the log for a committed reader.
func readable(p *kmsg.FetchResponseTopicPartition) int64 {
	if p.LastStableOffset >= 0 {
		return min(p.LastStableOffset, p.HighWatermark)
	}
	return p.HighWatermark
}

// fetching reads the batches of an answer.
type fetching struct {
	at      Partition
	from    int64
	limit   int64 // bytes of a record
	most    int64 // bytes that one batch may decompress to
	aborted *abortedReads
	visit   func(*delivery.Record) error
	out     *Fetched
	rec     delivery.Record // the last one
	scratch scratch
}

// read visits the records of one batch.
func (f *fetching) read(b logBatch) error {
	if b.Magic != magic {
		return f.unreadable(b, errOldFormat)
	}
	if b.last >= f.from && (b.attributes().Control() || !f.aborted.hides(b)) {
		f.out.Packed += int64(len(b.Records))
		if err := f.readRecords(b); err != nil {
			return err
		}
	}
	f.out.Next = max(f.out.Next, b.last+1) // also where compaction has left nothing
	return nil
}

// readRecords visits the records of a batch that is not empty.
func (f *fetching) readRecords(b logBatch) error {
	in, err := newRecords(b, f.limit, f.most, &f.scratch)
	if err != nil {
		return f.unreadable(b, err)
	}
	defer in.close()
	for {
		rec, size, err := in.next(f.from)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return f.unreadable(b, err)
		case b.attributes().Control():
			f.control(b, rec.Key)
			continue
		case rec.Offset < f.out.Next: // before from
			continue
		}
		if size > f.limit {
			rec.Flaw = &delivery.Flaw{Defect: delivery.ReasonTooLarge, Detail: tooLarge(size, f.limit), Lost: size}
		}
		f.rec = rec
		if err = f.pass(&f.rec, size); err != nil {
			return err
		}
	}
}

// pass visits a record of a size.
func (f *fetching) pass(rec *delivery.Record, size int64) error {
	f.out.Records++
	f.out.Bytes += size
	rec.Topic, rec.Partition = f.at.Topic, f.at.ID
	next := rec.Offset + 1
	err := f.visit(rec)
	if err == nil {
		f.out.Next = max(f.out.Next, next)
	}
	return err
}

// errOldFormat is about messages as Kafka wrote them before 0.11, and as Kafka 4 no longer keeps them.
var errOldFormat = errors.New("its format is older than that of Kafka 0.11; publish its jobs again")

// unreadable visits one record for what remains of a batch, which will be the same whenever it is read.
func (f *fetching) unreadable(b logBatch, cause error) error {
	first := max(f.out.Next, b.FirstOffset)
	if first > b.last || b.attributes().Control() {
		return nil
	}
	return f.pass(&delivery.Record{Offset: first, Time: time.UnixMilli(b.FirstTimestamp), Flaw: &delivery.Flaw{
		Defect: delivery.ReasonUndecodable, Lost: int64(len(b.Records)),
		Detail: fmt.Sprintf("the records from offset %d to %d cannot be read from their batch (%s): %v",
			first, b.last, b.attributes().Compression(), cause),
	}}, int64(len(b.Records)))
}

// control reads a marker that ends a transaction.
func (f *fetching) control(b logBatch, key []byte) {
	var marker kmsg.ControlRecordKey
	if marker.ReadFrom(key) == nil && marker.Type == kmsg.ControlRecordKeyTypeAbort {
		f.aborted.ended(b.FirstOffset, b.ProducerID)
	}
}

// abortedReads determines which batches belong to aborted transactions: those of a producer from the first offset of
// its aborted transaction up to its abort marker. The broker lists the former; the log holds the latter.
type abortedReads struct {
	coming []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset
	active map[int64]bool                                       // producers
}

func newAbortedReads(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) *abortedReads {
	slices.SortFunc(list, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return &abortedReads{coming: list, active: map[int64]bool{}}
}

func (a *abortedReads) upTo(offset int64) {
	for len(a.coming) > 0 && a.coming[0].FirstOffset <= offset {
		a.active[a.coming[0].ProducerID] = true
		a.coming = a.coming[1:]
	}
}

func (a *abortedReads) hides(b logBatch) bool {
	if !b.attributes().Transactional() {
		return false
	}
	a.upTo(b.FirstOffset)
	return a.active[b.ProducerID]
}

func (a *abortedReads) ended(offset, producer int64) {
	a.upTo(offset)
	delete(a.active, producer)
}

// accepts returns what decides whether an answer is read, by its size: a broker answers with a batch at least, and otherwise with what was asked for.
func (r *FetchRequest) accepts(batch int64) func(size int64) error {
	return func(size int64) error {
		switch more := size - r.Claimed - answerFrame; {
		case size > r.MaxBytes+batch:
			return fmt.Errorf("an answer has %d bytes, and %d were asked for", size, r.MaxBytes)
		case r.Room != nil && more > 0 && !r.Room(more):
			return &LargeAnswer{size}
		}
		return nil
	}
}

// fetch sends one fetch for several partitions of one leader, once it may. A broker that throttles may answer for none of them. Call free when
// the records are not used any more.
func (c *Client) fetch(ctx context.Context, leader int, requests []FetchRequest) (response *kmsg.FetchResponse, free func(), err error) {
	first, grace, at := requests[0], fetchGrace, gate{fetches, leader}
	if slow, ok := c.slow.Load(first.Partition); ok {
		grace = slow.(time.Duration)
	}
	little, err := c.throttle.wait(ctx, at, first.Yields)
	if err != nil {
		return nil, nil, err
	}
	if little {
		first.MaxBytes = min(first.MaxBytes, littleBytes)
	}
	within, cancel := context.WithTimeout(ctx, first.MaxWait+grace)
	defer cancel()
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = int32(first.MaxWait.Milliseconds()), 1, int32(first.MaxBytes)
	request.SessionEpoch, request.IsolationLevel = -1, 1 // none; committed records only
	for topic, list := range byTopic(requests, func(r FetchRequest) (string, kmsg.FetchRequestTopicPartition) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(r.ID), r.Offset, int32(r.MaxBytes)
		return r.Topic, p
	}) {
		request.Topics = append(request.Topics, kmsg.FetchRequestTopic{Topic: topic, Partitions: list})
	}
	response, free, err = exchangedUpTo[*kmsg.FetchResponse](within, c, leader, request, first.accepts(c.largestBatch()))
	switch {
	case err == nil:
		c.slow.Delete(first.Partition)
		c.throttle.note(at, response.ThrottleMillis)
		err = codeError(response.ErrorCode)
	case within.Err() != nil && ctx.Err() == nil:
		c.slow.Store(first.Partition, min(2*grace, maxFetchGrace))
	}
	return response, free, err
}
