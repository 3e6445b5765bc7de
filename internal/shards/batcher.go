package shards

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	// batchGap is the least time between the beginnings of two round trips: entries added in between share one.
	batchGap = time.Millisecond
	// MaxBatch bounds the entries of a round trip; Redis takes well below a millisecond for them.
	MaxBatch = 256
	// maxWaiting bounds the entries that wait, which would accumulate while Redis does not answer.
	maxWaiting = 65_536
	retryEvery = 100 * time.Millisecond // between round trips while they fail
)

// The errors of entries that were not sent.
var (
	ErrFull  = errors.New("too many entries wait for Redis")
	ErrEnded = errors.New("the batcher has ended")
)

// Batch is what a Batcher does with its entries.
type Batch[E any] struct {
	// Send makes one round trip with the entries and ends them. After an error it returns those that are to be sent again, before all others.
	Send func(batch []E) (again []E, err error)
	// Unwanted reports whether an entry that waits is not to be sent any more; it has ended the entry then. nil: never.
	Unwanted func(E) bool
	// GiveUp ends an entry that is not sent.
	GiveUp func(E, error)
}

// Batcher collects the entries of a shard and sends them in batches, one at a time: a daemon that sends 10,000 jobs a second makes at most
// 1,000 round trips. An entry is sent at once if no batch is in progress. Make one with NewBatcher; Add may be called by any number of goroutines
// while Run runs.
type Batcher[E any] struct {
	batch  Batch[E]
	outage retry.Outage
	wake   retry.Signal

	mu      sync.Mutex
	waiting []E  // guarded by mu
	ended   bool // guarded by mu
}

// NewBatcher makes a Batcher.
func NewBatcher[E any](b Batch[E]) *Batcher[E] { return &Batcher[E]{batch: b, wake: retry.NewSignal()} }

// Failing reports whether the last round trip failed.
func (b *Batcher[E]) Failing() bool { return b.outage.Failures() > 0 }

// FailsFor returns for how long all round trips have failed; 0 if the last one did not.
func (b *Batcher[E]) FailsFor() time.Duration { return b.outage.Lasts() }

// Add queues entries for a round trip. They may fail at once.
func (b *Batcher[E]) Add(entries ...E) {
	b.mu.Lock()
	var err error
	switch {
	case b.ended:
		err = ErrEnded
	case len(b.waiting)+len(entries) > maxWaiting:
		err = ErrFull
	default:
		b.waiting = append(b.waiting, entries...)
	}
	b.mu.Unlock()
	if err == nil {
		b.wake.Send()
		return
	}
	for _, e := range entries {
		b.batch.GiveUp(e, err)
	}
}

// Run sends batches until ctx ends, and then the entries that wait.
func (b *Batcher[E]) Run(ctx context.Context) {
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			b.end()
			return
		}
		for batch := b.next(); len(batch) > 0; batch = b.next() {
			begun, gap := time.Now(), batchGap
			switch {
			case !b.send(batch):
				gap = retryEvery
			case len(batch) == MaxBatch:
				continue
			}
			time.Sleep(gap - time.Since(begun))
			if ctx.Err() != nil {
				break
			}
		}
	}
}

// end sends the entries that wait, unless Redis does not answer, and accepts no more.
func (b *Batcher[E]) end() {
	for batch := b.next(); len(batch) > 0 && b.send(batch); batch = b.next() {
		continue
	}
	b.mu.Lock()
	left := b.waiting
	b.waiting, b.ended = nil, true
	b.mu.Unlock()
	for _, e := range left {
		b.batch.GiveUp(e, ErrEnded)
	}
}

// next removes a batch of the entries that wait.
func (b *Batcher[E]) next() []E {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch, n := make([]E, 0, min(len(b.waiting), MaxBatch)), 0
	for ; n < len(b.waiting) && len(batch) < MaxBatch; n++ {
		if e := b.waiting[n]; b.batch.Unwanted == nil || !b.batch.Unwanted(e) {
			batch = append(batch, e)
		}
	}
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil
	}
	return batch
}

// send makes one round trip, and reports whether Redis answered.
func (b *Batcher[E]) send(batch []E) bool {
	again, err := b.batch.Send(batch)
	if err != nil {
		b.outage.Failed()
	} else {
		b.outage.Worked()
	}
	if len(again) > 0 {
		b.mu.Lock()
		b.waiting = append(again, b.waiting...)
		b.mu.Unlock()
	}
	return err == nil
}
