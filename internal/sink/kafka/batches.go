package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
)

// Bounds on one request.
const (
	maxBatchRecords   = 500 // of one partition
	maxBatchBytes     = 512 << 10
	maxRequestRecords = 4000
	maxRequestBytes   = 4 << 20
)

// errLate is why an entry is not sent that has waited for too long.
var errLate = errors.New("not written in time: others wait for an acknowledgement")

// pause is how long a record that the broker has certainly not written waits before it is written again.
const pause = 50 * time.Millisecond

// entry is a record on its way.
type entry struct {
	record delivery.Record // owned by who has moved the state on
	key    []byte
	size   int
	done   chan error // gets the outcome, nil for acknowledged; of one
	latest time.Time  // it is not sent after this: its call would not wait for the acknowledgement

	state atomic.Int32
	last  error // why it was not written so far; written before the state becomes waiting again

	// Owned by the goroutine that collects, or by the one that sends.
	to   int // partition
	most int // records of its batch: less after a batch was refused for one of its records
}

// States of an entry: waiting -> sending -> waiting … until there is an outcome, or waiting -> withdrawn.
const (
	waiting int32 = iota
	sending
	withdrawn
)

// withdraw is called when the entry's call stops waiting. It reports whether the entry was not written, and will not be.
func (e *entry) withdraw() bool {
	if !e.state.CompareAndSwap(waiting, withdrawn) {
		return false
	}
	e.record = delivery.Record{} // it may stay in a list for a while
	return true
}

// take is called before the entry is sent. It reports whether a call waits for it. An entry that is too late ends here.
func (e *entry) take(now time.Time) bool {
	if !e.state.CompareAndSwap(waiting, sending) {
		return false
	}
	if now.After(e.latest) {
		e.done <- broker.Unsent(cmp.Or(e.last, errLate))
		return false
	}
	return true
}

// back is called when the entry was not written, for a reason that passes.
func (e *entry) back(why error) {
	e.last = why
	e.state.Store(waiting)
}

// batches collects entries and sends them. Entries of partitions with different leaders go in different requests, at most one for each
// leader at a time, so that a broker that hangs delays only its own. Entries that come meanwhile are the leader's next request.
//
// A batch that was certainly not written, since its leader has moved or is being elected, is sent again after a pause, as
// long as the calls of Deliver wait for it. So is, in halves, one that was refused for one of its records.
type batches struct {
	sink  *Sink
	ended chan *leader  // its request has ended
	again chan []*entry // those that were not written, after the pause

	// Owned by run.
	collected []*entry
	leaders   map[int]*leader
	next      int   // partition of the next entries without a key
	numbers   []int // 0, 1, 2 …
	requests  sync.WaitGroup
}

// leader is what waits for one broker.
type leader struct {
	waiting []*entry
	busy    bool // a request is in flight
}

func newBatches(s *Sink) *batches {
	return &batches{sink: s, ended: make(chan *leader), again: make(chan []*entry), leaders: map[int]*leader{}}
}

func (b *batches) run(ctx context.Context) {
	defer b.requests.Wait()
	due := time.NewTimer(0) // when what was collected is sent
	for {
		select {
		case e := <-b.sink.queue:
			if b.collected = append(b.collected, e); len(b.collected) == 1 {
				due.Reset(b.sink.config.Linger)
			}
			if len(b.collected) < maxRequestRecords {
				continue
			}
		case l := <-b.ended:
			l.busy = false
			b.start(ctx, l)
			continue
		case entries := <-b.again:
			b.collected = append(b.collected, entries...)
		case <-due.C:
		case <-ctx.Done():
			return
		}
		b.distribute(ctx)
	}
}

// distribute passes what was collected to the leaders of its partitions.
func (b *batches) distribute(ctx context.Context) {
	collected := slices.DeleteFunc(b.collected, func(e *entry) bool { return e.state.Load() == withdrawn })
	b.collected = nil
	if len(collected) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, b.sink.config.Timeout)
	layout, err := b.sink.client.Leaders(asking, b.sink.config.Topic)
	cancel()
	if err != nil {
		for _, e := range collected {
			if e.state.CompareAndSwap(waiting, sending) {
				e.done <- broker.Unsent(err)
			}
		}
		return
	}
	touched := map[int]*leader{}
	keyless := 0
	for _, e := range collected {
		if len(e.key) > 0 {
			e.to = b.partitionOf(e.key, len(layout))
		} else {
			if keyless%maxBatchRecords == 0 {
				b.turn(layout)
			}
			keyless++
			e.to = b.next
		}
		id := layout[e.to]
		if b.leaders[id] == nil {
			b.leaders[id] = &leader{}
		}
		b.leaders[id].waiting = append(b.leaders[id].waiting, e)
		touched[id] = b.leaders[id]
	}
	for _, l := range touched {
		b.start(ctx, l)
	}
}

// turn chooses the partition for the next entries without a key: one whose leader is idle, or has one, if there is any.
func (b *batches) turn(layout []int) {
	led := -1
	for range layout {
		b.next = (b.next + 1) % len(layout)
		id := layout[b.next]
		if l := b.leaders[id]; id >= 0 && (l == nil || !l.busy) {
			return
		}
		if id >= 0 && led < 0 {
			led = b.next
		}
	}
	b.next = max(led, 0)
}

// start sends what waits for the leader, up to a request's bounds, unless a request to it is in flight.
func (b *batches) start(ctx context.Context, l *leader) {
	if l.busy {
		return
	}
	chunks := l.request(b.sink.config.Topic, time.Now())
	if len(chunks) == 0 {
		return
	}
	l.busy = true
	b.requests.Go(func() {
		again := b.sink.send(ctx, chunks)
		select {
		case b.ended <- l:
		case <-ctx.Done():
		}
		if len(again) == 0 {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		select {
		case b.again <- again:
		case <-ctx.Done():
		}
	})
}

// request takes entries for the next request, in order within each partition.
func (l *leader) request(topic string, now time.Time) (chunks []broker.Chunk[*entry]) {
	type filling struct{ chunk, bytes, most int }
	open := map[int]*filling{} // by partition
	records, bytes, taken := 0, 0, 0
	for _, e := range l.waiting {
		if records == maxRequestRecords || records > 0 && bytes+e.size > maxRequestBytes {
			break
		}
		taken++
		if !e.take(now) {
			continue
		}
		f := open[e.to]
		if f == nil || len(chunks[f.chunk].Items) >= min(f.most, e.most) || f.bytes+e.size > maxBatchBytes {
			f = &filling{len(chunks), 0, e.most}
			open[e.to] = f
			chunks = append(chunks, broker.Chunk[*entry]{To: broker.Partition{Topic: topic, ID: e.to}})
		}
		chunks[f.chunk].Items = append(chunks[f.chunk].Items, e)
		f.bytes, f.most = f.bytes+e.size, min(f.most, e.most)
		records, bytes = records+1, bytes+e.size
	}
	l.waiting = slices.Clone(l.waiting[taken:])
	return chunks
}

// send writes chunks and reports their outcomes. It returns the entries that were not written, and may be.
func (s *Sink) send(ctx context.Context, chunks []broker.Chunk[*entry]) (again []*entry) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout) // ctx outlives the calls of Deliver
	defer cancel()
	w := &broker.Writer[*entry]{
		Client: s.client, Compress: s.config.Compression == zstd,
		Encode: func(e *entry, now time.Time) delivery.Record {
			e.record.Time = now
			return e.record
		},
		Acked: func(entries []*entry) { outcome(entries, nil) },
		Failed: func(c broker.Chunk[*entry], err error) {
			switch n := len(c.Items); {
			case ofOneRecord(err) && n > 1:
				for _, e := range c.Items {
					e.most = n / 2
				}
				err = nil // it is one's, and which one's is not known
			case !passing(err):
				outcome(c.Items, err)
				return
			}
			s.Repeats.Add(uint64(len(c.Items)))
			again = append(again, returned(c.Items, err)...)
		},
	}
	for _, c := range w.Write(ctx, chunks) {
		again = append(again, returned(c.Items, nil)...)
	}
	return again
}

func outcome(entries []*entry, err error) {
	for _, e := range entries {
		e.done <- err
	}
}

func returned(entries []*entry, why error) []*entry {
	for _, e := range entries {
		e.back(why)
	}
	return entries
}

// partitionOf chooses as Kafka's own clients do, so that a key is in one partition for all writers.
func (b *batches) partitionOf(key []byte, partitions int) int {
	for len(b.numbers) < partitions {
		b.numbers = append(b.numbers, len(b.numbers))
	}
	return kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: key}, b.numbers[:partitions]...)
}
