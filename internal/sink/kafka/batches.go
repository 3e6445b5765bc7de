package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
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
	record delivery.Record
	size   int
	begun  time.Time
	done   chan error // gets the outcome, nil for acknowledged; of one

	// Guarded by the lock of the batches while the entry waits, and else owned by the request that it is in.
	waits bool  // its call may give up
	last  error // why it was not written so far
	to    int   // partition
	most  int   // records of its batch: less after a batch was refused for one of its records
}

// batches sends entries. Entries of partitions with different leaders go in different requests, at most one for each
// leader at a time, so that a broker that hangs delays only its own. Entries that come meanwhile are the leader's next request.
//
// A batch that was certainly not written, since its leader has moved or is being elected, is sent again after a pause, as
// long as the calls of Deliver wait for it. So is, in halves, one that was refused for one of its records.
type batches struct {
	sink     *Sink
	life     context.Context // of requests
	end      context.CancelFunc
	requests sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	leaders map[int]*leader
	next    int   // partition of the next entries without a key
	left    int   // how many of these it gets
	numbers []int // 0, 1, 2 …
}

// leader is what waits for one broker.
type leader struct {
	waiting []*entry
	served  bool // by a goroutine
	busy    bool // with a request
}

func newBatches(s *Sink) *batches {
	b := &batches{sink: s, leaders: map[int]*leader{}}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// close ends the requests. No more entries may be put.
func (b *batches) close() {
	b.end()
	b.requests.Wait()
}

// put adds entries to what waits for the leaders of their partitions.
func (b *batches) put(ctx context.Context, entries ...*entry) error {
	layout, err := b.sink.client.Leaders(ctx, b.sink.config.Topic)
	if err != nil {
		return broker.Unsent(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		if len(e.record.Key) > 0 {
			e.to = b.partitionOf(e.record.Key, len(layout))
		} else {
			e.to = b.turn(layout)
		}
		l := b.leaders[layout[e.to]]
		if l == nil {
			l = &leader{}
			b.leaders[layout[e.to]] = l
		}
		if l.waiting = append(l.waiting, e); !l.served {
			l.served = true
			b.requests.Go(func() { b.serve(l) })
		}
	}
	return nil
}

// turn returns the partition of an entry without a key. Until the next request, they go to the same one, whose leader is idle, or which has one, if
// there is any.
func (b *batches) turn(layout []int) int {
	if b.left == 0 || b.next >= len(layout) || layout[b.next] < 0 {
		led := -1
		for range layout {
			b.next = (b.next + 1) % len(layout)
			id := layout[b.next]
			if l := b.leaders[id]; id >= 0 && (l == nil || !l.busy) {
				led = b.next
				break
			}
			if id >= 0 && led < 0 {
				led = b.next
			}
		}
		b.next, b.left = max(led, 0), maxBatchRecords
	}
	b.left--
	return b.next
}

// serve sends what waits for a leader, until nothing does. Entries linger, so that others share their request.
func (b *batches) serve(l *leader) {
	for {
		b.mu.Lock()
		l.busy = false
		if l.served = len(l.waiting) > 0; !l.served {
			b.mu.Unlock()
			return
		}
		due := l.waiting[0].begun.Add(b.sink.config.Linger)
		b.mu.Unlock()
		_ = retry.Sleep(b.life, time.Until(due))
		b.mu.Lock()
		chunks := b.request(l, time.Now())
		b.mu.Unlock()
		again := b.send(chunks)
		if len(again) > 0 {
			b.requests.Go(func() { b.again(again) })
		}
	}
}

// again puts entries that were not written once more, after a pause.
func (b *batches) again(entries []*entry) {
	_ = retry.Sleep(b.life, pause)
	if err := b.put(b.life, entries...); err != nil {
		for _, e := range entries {
			if b.withdraw(e) {
				e.done <- err
			}
		}
	}
}

// request takes entries for the next request to a leader, in order within each partition. It is called with the lock held.
func (b *batches) request(l *leader, now time.Time) (chunks []broker.Chunk[*entry]) {
	type filling struct{ chunk, bytes, most int }
	open := map[int]*filling{} // by partition
	records, bytes, taken := 0, 0, 0
	for _, e := range l.waiting {
		if records == maxRequestRecords || records > 0 && bytes+e.size > maxRequestBytes {
			break
		}
		taken++
		if !e.waits {
			continue
		}
		if e.waits = false; now.Sub(e.begun) > b.sink.config.Timeout*2/3 { // its call would not wait for the acknowledgement
			e.done <- broker.Unsent(cmp.Or(e.last, errLate))
			continue
		}
		f := open[e.to]
		if f == nil || len(chunks[f.chunk].Items) >= min(f.most, e.most) || f.bytes+e.size > maxBatchBytes {
			f = &filling{len(chunks), 0, e.most}
			open[e.to] = f
			chunks = append(chunks, broker.Chunk[*entry]{To: broker.Partition{Topic: b.sink.config.Topic, ID: e.to}})
		}
		chunks[f.chunk].Items = append(chunks[f.chunk].Items, e)
		f.bytes, f.most = f.bytes+e.size, min(f.most, e.most)
		records, bytes = records+1, bytes+e.size
	}
	l.waiting = slices.Clone(l.waiting[taken:])
	l.busy, b.left = true, 0
	return chunks
}

// send writes chunks and reports their outcomes. It returns the entries that were not written, and may be.
func (b *batches) send(chunks []broker.Chunk[*entry]) (again []*entry) {
	ctx, cancel := context.WithTimeout(b.life, b.sink.config.Timeout) // which outlives the calls of Deliver
	defer cancel()
	w := &broker.Writer[*entry]{
		Client: b.sink.client, Compress: b.sink.config.Compression == zstd,
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
			b.sink.Repeats.Add(uint64(len(c.Items)))
			again = append(again, b.returned(c.Items, err)...)
		},
	}
	for _, c := range w.Write(ctx, chunks) {
		again = append(again, b.returned(c.Items, nil)...)
	}
	return again
}

func outcome(entries []*entry, err error) {
	for _, e := range entries {
		e.done <- err
	}
}

// returned has entries wait again that were not written, for a reason that passes.
func (b *batches) returned(entries []*entry, why error) []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		e.waits, e.last = true, why
	}
	return entries
}

// withdraw is called when the entry's call stops waiting. It reports whether the entry was not written, and will not be.
func (b *batches) withdraw(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !e.waits {
		return false
	}
	e.waits, e.record = false, delivery.Record{} // it may stay in a list for a while
	return true
}

// partitionOf chooses as Kafka's own clients do, so that a key is in one partition for all writers.
func (b *batches) partitionOf(key []byte, partitions int) int {
	for len(b.numbers) < partitions {
		b.numbers = append(b.numbers, len(b.numbers))
	}
	return kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: key}, b.numbers[:partitions]...)
}
