package broker

import (
	"context"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/retry"
)

// logs are partitions of one broker, as a poll sees them.
type logs struct {
	mu      sync.Mutex
	ends    map[Partition]int64
	written chan struct{} // closed and made anew at each write
	asked   int
	most    int // requests at a time
	now     int
}

func newLogs(partitions int) *logs {
	l := &logs{ends: map[Partition]int64{}, written: make(chan struct{})}
	for i := range partitions {
		l.ends[Partition{"lanes", i}] = 0
	}
	return l
}

// write appends a record.
func (l *logs) write(at Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[at]++
	close(l.written)
	l.written = make(chan struct{})
}

func (l *logs) fetch(ctx context.Context, _ int, requests []FetchRequest) (*kmsg.FetchResponse, func(), error) {
	l.mu.Lock()
	l.asked++
	l.now++
	l.most = max(l.most, l.now)
	l.mu.Unlock()
	defer func() { l.mu.Lock(); l.now--; l.mu.Unlock() }()
	over := time.After(requests[0].MaxWait)
	for {
		l.mu.Lock()
		topic, written := kmsg.FetchResponseTopic{Topic: "lanes"}, l.written
		found := false
		for _, r := range requests {
			end := l.ends[r.Partition]
			found = found || end > r.Offset
			topic.Partitions = append(topic.Partitions, kmsg.FetchResponseTopicPartition{Partition: int32(r.ID), HighWatermark: end, LastStableOffset: -1})
		}
		l.mu.Unlock()
		answer := &kmsg.FetchResponse{Topics: []kmsg.FetchResponseTopic{topic}}
		if found {
			return answer, func() {}, nil
		}
		select {
		case <-written:
		case <-over:
			return answer, func() {}, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (l *logs) byLeader(_ context.Context, partitions iter.Seq[Partition], _ func(Partition, error)) map[int][]Partition {
	groups := map[int][]Partition{}
	for at := range partitions {
		groups[1] = append(groups[1], at)
	}
	return groups
}

func (l *logs) forget() {}

// counts returns how many requests there were, in all and at a time.
func (l *logs) counts() (asked, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked, l.most
}

// TestPollSeesABurst: a partition that becomes idle again within a burst is watched at once, though the long poll lacks it.
// Two requests at a time are enough, and while nothing comes there is one, of the long kind.
func TestPollSeesABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs(3)
		p := &Poll{client: l, parked: map[Partition]*parked{}, more: retry.NewSignal()}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		arrivals := make(chan time.Duration, 100) // how long each record of the first partition was not noticed
		var wrote time.Time
		for at := range l.ends {
			running.Go(func() {
				for offset := int64(0); ; offset++ {
					wake, leave := p.Park(at, offset)
					select {
					case <-wake:
					case <-ctx.Done():
						leave()
						return
					}
					if at.ID == 0 {
						arrivals <- time.Since(wrote)
					}
					time.Sleep(3 * time.Millisecond) // it reads
				}
			})
		}
		time.Sleep(10 * time.Second)
		if asked, _ := l.counts(); asked > 45 { // the readers park one after the other, and short polls watch those that the first long one lacks
			t.Errorf("%d requests in ten seconds without data", asked)
		}
		for range 40 { // after idling, two records in a row
			time.Sleep(2*pollWait + 7*time.Millisecond)
			for range 2 {
				wrote = time.Now()
				l.write(Partition{"lanes", 0})
				if late := <-arrivals; late > 50*time.Millisecond {
					t.Errorf("noticed after %v", late)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		if _, most := l.counts(); most > 2 {
			t.Errorf("%d requests at a time", most)
		}
		cancel()
		running.Wait()
	})
}
