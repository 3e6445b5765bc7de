package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// idleWait is how long one poll for all idle partitions of a broker waits for data. A partition that becomes idle joins
// the next one, so this is also about the longest that a job lies in an idle lane or timer unnoticed.
const idleWait = 500 * time.Millisecond

// idlePause lets readers that park at about the same time be looked at together, while a poll is under way anyway.
const idlePause = 25 * time.Millisecond

// idlePoll watches the lanes and timers that have nothing to read: one long poll per broker for all of them together,
// with a byte limit of 1, so that its answer says where there is data and brings next to none. A long poll each would
// take a connection each; ListOffsets, which kafka-go splits into one request per partition, would take a request
// each, and notice data up to a second late. Safe for use by several goroutines.
type idlePoll struct {
	fetcher *fetcher
	client  *kafka.Client

	mu     sync.Mutex
	parked map[partition]*parked
	more   chan struct{} // receives when somebody parks; holds one
}

// parked is a reader that waits for data.
type parked struct {
	offset int64
	wake   chan struct{} // closed when there is something to read, or trouble that the reader should see for itself
}

func newIdlePoll(f *fetcher, c *kafka.Client) *idlePoll {
	return &idlePoll{fetcher: f, client: c, parked: map[partition]*parked{}, more: make(chan struct{}, 1)}
}

// park returns a channel that is closed when the partition holds something at or beyond the offset. One waiter per
// partition; parking again replaces the last one. Call leave when no longer interested.
func (p *idlePoll) park(at partition, offset int64) (wake <-chan struct{}, leave func()) {
	w := &parked{offset: offset, wake: make(chan struct{})}
	p.mu.Lock()
	p.parked[at] = w
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
	return w.wake, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.parked[at] == w {
			delete(p.parked, at)
		}
	}
}

// run polls until ctx ends: at most one request per broker at a time, and no broker's data waits for another's.
func (p *idlePoll) run(ctx context.Context) {
	var polls sync.WaitGroup
	defer polls.Wait()
	busy, done := map[int]bool{}, make(chan int)
	for {
		for leader, group := range p.byLeader(ctx) {
			if busy[leader] {
				continue
			}
			busy[leader] = true
			polls.Go(func() {
				p.poll(ctx, group)
				select {
				case done <- leader:
				case <-ctx.Done():
				}
			})
		}
		select {
		case leader := <-done:
			delete(busy, leader)
		case <-p.more:
			if len(busy) > 0 && sleep(ctx, idlePause) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// byLeader groups what is parked by the broker that leads it. The transport answers from its cache.
func (p *idlePoll) byLeader(ctx context.Context) map[int][]fetchRequest {
	p.mu.Lock()
	waiting := make(map[partition]int64, len(p.parked))
	topics := map[string]bool{}
	for at, w := range p.parked {
		waiting[at] = w.offset
		topics[at.topic] = true
	}
	p.mu.Unlock()
	if len(waiting) == 0 {
		return nil
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	groups := map[int][]fetchRequest{}
	leaders := map[partition]int{}
	metadata, err := p.client.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
	if err == nil {
		for _, t := range metadata.Topics {
			for _, q := range t.Partitions {
				leaders[partition{t.Name, q.ID}] = q.Leader.ID
			}
		}
	}
	for at, offset := range waiting {
		leader, known := leaders[at]
		if !known {
			p.release(at, offset) // its reader finds out what is wrong, and backs off
			continue
		}
		groups[leader] = append(groups[leader], fetchRequest{partition: at, offset: offset, maxBytes: 1, maxWait: idleWait})
	}
	return groups
}

// poll waits for data of one broker's partitions and releases the readers of those that have some.
func (p *idlePoll) poll(ctx context.Context, group []fetchRequest) {
	response, err := p.fetcher.roundTrip(ctx, group)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		for _, r := range group {
			p.release(r.partition, r.offset)
		}
		_ = sleep(ctx, idleWait)
		return
	}
	asked := make(map[partition]int64, len(group))
	for _, r := range group {
		asked[r.partition] = r.offset
	}
	for _, t := range response.Topics {
		for i := range t.Partitions {
			q := &t.Partitions[i]
			at := partition{t.Topic, int(q.Partition)}
			if offset, ok := asked[at]; ok && (q.ErrorCode != 0 || readable(q) > offset) {
				p.release(at, offset)
			}
		}
	}
}

// release wakes the reader that was parked at the offset.
func (p *idlePoll) release(at partition, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.parked[at]; w != nil && w.offset == offset {
		delete(p.parked, at)
		close(w.wake)
	}
}
