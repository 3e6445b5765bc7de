package broker

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/retry"
)

const (
	pollWait  = 500 * time.Millisecond // how long one poll for all idle partitions of a broker waits for data
	pollShort = 25 * time.Millisecond  // how long a poll for those waits that parked during the long one
	pollPause = 25 * time.Millisecond  // lets a poll collect the readers that park at about the same time
)

// Poll watches partitions that have nothing to read, with one long poll per broker for all of them. The byte limit is 1, so an answer
// shows where there is data and contains one batch. The partition's reader gets that batch. A long poll per partition would need a
// connection each; ListOffsets, which kafka-go splits into one request per partition, would need a request each and notice data up to a
// second late. A partition that becomes idle again during a long poll, as in a burst, is not in it: until it ends, short polls watch
// those. Safe for concurrent use.
type Poll struct {
	client pollClient

	mu     sync.Mutex
	parked map[Partition]*parked
	more   retry.Signal // a reader has parked
}

// pollClient is what a Poll needs of a Client.
type pollClient interface {
	fetch(ctx context.Context, leader int, requests []FetchRequest) (*kmsg.FetchResponse, func(), error)
	byLeader(ctx context.Context, partitions iter.Seq[Partition], unknown func(Partition, error)) map[int][]Partition
	forget()
}

// parked is a reader that waits for data.
type parked struct {
	offset int64
	wake   chan *Brought // closed when there is something to read, or an error that the reader should see for itself
	long   bool          // the long poll of its broker watches it, or the last one did
}

// NewPoll makes a poll. It starts nothing.
func NewPoll(c *Client) *Poll {
	return &Poll{client: c, parked: map[Partition]*parked{}, more: retry.NewSignal()}
}

// Brought is what a poll has read of a partition, for the next Fetch from the offset on.
type Brought struct {
	Offset int64
	answer kmsg.FetchResponseTopicPartition
}

// maxBrought bounds what is kept for a reader, which may wait for memory.
const maxBrought = 64 << 10

// broughtBy returns what an answer has brought, in memory of its own; nil for nothing that is worth keeping.
func broughtBy(offset int64, answer kmsg.FetchResponseTopicPartition) *Brought {
	if _, _, whole, err := recordSet(answer.RecordBatches).next(); !whole || err != nil || len(answer.RecordBatches) > maxBrought {
		return nil
	}
	answer.RecordBatches = bytes.Clone(answer.RecordBatches)
	return &Brought{offset, answer}
}

// Park returns a channel that is closed when the partition contains a record at or beyond the offset, after what there is of it. There is one
// waiter per partition; parking again replaces the previous one. Call leave when no longer interested.
func (p *Poll) Park(at Partition, offset int64) (wake <-chan *Brought, leave func()) {
	w := &parked{offset: offset, wake: make(chan *Brought, 1)}
	p.mu.Lock()
	p.parked[at] = w
	p.mu.Unlock()
	p.more.Send()
	return w.wake, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.parked[at] == w {
			delete(p.parked, at)
		}
	}
}

// request is one of the two requests that a broker may have at a time.
type request struct {
	leader int
	long   bool
}

// Run polls until ctx ends: at most one long and one short request per broker at a time, each independent of the others.
func (p *Poll) Run(ctx context.Context) {
	var polls sync.WaitGroup
	defer polls.Wait()
	busy, done := map[request]bool{}, make(chan request)
	for {
		for leader, partitions := range p.byLeader(ctx) {
			r := request{leader, !busy[request{leader, true}]}
			group := p.watch(partitions, r.long)
			if busy[r] || len(group) == 0 {
				continue
			}
			busy[r] = true
			polls.Go(func() {
				p.poll(ctx, leader, group)
				select {
				case done <- r:
				case <-ctx.Done():
				}
			})
		}
		select {
		case r := <-done:
			delete(busy, r)
		case <-p.more:
			if len(busy) > 0 && retry.Sleep(ctx, pollPause) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// byLeader groups the parked partitions by leader.
func (p *Poll) byLeader(ctx context.Context) map[int][]Partition {
	p.mu.Lock()
	waiting := maps.Clone(p.parked)
	p.mu.Unlock()
	return p.client.byLeader(ctx, maps.Keys(waiting), func(at Partition, _ error) {
		p.release(at, waiting[at].offset, nil) // its reader finds the error, and backs off
	})
}

// watch returns requests for a long poll of partitions with one leader, or for a short one: of those that the long one lacks.
func (p *Poll) watch(partitions []Partition, long bool) (group []FetchRequest) {
	wait := pollShort
	if long {
		wait = pollWait
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range partitions {
		if w := p.parked[at]; w != nil && (long || !w.long) {
			w.long = long
			group = append(group, FetchRequest{Partition: at, Offset: w.offset, MaxBytes: 1, MaxWait: wait})
		}
	}
	return group
}

// poll waits for data of one broker's partitions and releases the readers of those that have some.
func (p *Poll) poll(ctx context.Context, leader int, group []FetchRequest) {
	response, free, err := p.client.fetch(ctx, leader, group)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.client.forget()
		for _, r := range group {
			p.release(r.Partition, r.Offset, nil)
		}
		_ = retry.Sleep(ctx, pollWait)
		return
	}
	defer free()
	asked := make(map[Partition]int64, len(group))
	for _, r := range group {
		asked[r.Partition] = r.Offset
	}
	for _, t := range response.Topics {
		for i := range t.Partitions {
			q := &t.Partitions[i]
			at := Partition{t.Topic, int(q.Partition)}
			switch offset, ok := asked[at]; {
			case !ok:
			case q.ErrorCode != 0:
				p.release(at, offset, nil)
			case readable(q) > offset:
				p.release(at, offset, broughtBy(offset, *q))
			}
		}
	}
}

// release wakes the reader that was parked at the offset.
func (p *Poll) release(at Partition, offset int64, brought *Brought) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.parked[at]; w != nil && w.offset == offset {
		delete(p.parked, at)
		if brought != nil {
			w.wake <- brought
		}
		close(w.wake)
	}
}
