package dedupe

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// batchGap is the least time between the beginnings of two round trips: entries added in between share one.
	batchGap = time.Millisecond
	maxBatch = 256 // entries per round trip; Redis takes well below a millisecond for them
	// maxWaiting bounds the waiting entries of a shard. Leases and marks of calls in flight are far fewer, but marks
	// that no caller waits for would accumulate while Redis does not answer.
	maxWaiting   = 65_536
	batchTimeout = 500 * time.Millisecond // of one round trip
	retryEvery   = 100 * time.Millisecond // between round trips while they fail
)

//go:embed lua/lease.lua
var sources embed.FS

var script = shards.NewScript(sources, "lua/lease.lua")

var (
	errFull  = errors.New("too many jobs wait for the dedupe ledger")
	errEnded = errors.New("the dedupe ledger has ended")
)

// The kinds of entries, as in the script.
const (
	leaseEntry   = "lease"
	markEntry    = "mark"
	releaseEntry = "release"
)

// The script's answers to a lease. Any other answer is how many milliseconds another node still has the job.
const (
	leased    = 0
	delivered = -1
)

// entry is one operation on the ledger.
type entry struct {
	what  string
	id    id
	token string
	keep  time.Duration // how long Redis keeps the value

	answer int64         // valid once done is closed
	err    error         // valid once done is closed
	done   chan struct{} // closed when the entry has been processed
	gone   atomic.Bool   // a lease that is no longer wanted
}

func newEntry(what string, i id, token string, keep time.Duration) *entry {
	return &entry{what: what, id: i, token: token, keep: keep, done: make(chan struct{})}
}

func (e *entry) finish(answer int64, err error) {
	e.answer, e.err = answer, err
	close(e.done)
}

// shard collects the entries of a shard's jobs and sends them in batches, one at a time: a daemon that sends 10,000
// jobs a second makes at most 1,000 round trips. An entry is sent at once if no batch is in progress.
//
// Marks are kept until Redis has stored them, in their order and before any later entry of this node. Other entries
// fail with an error.
type shard struct {
	client redis.UniversalClient
	tag    string
	node   string
	m      *metrics
	log    *slog.Logger // names the shard
	open   bool         // jobs are sent while Redis does not answer

	failing atomic.Bool // the last round trip failed
	wake    retry.Signal

	mu      sync.Mutex
	waiting []*entry // guarded by mu
	ended   bool     // guarded by mu
}

// add queues the entry for a round trip. The entry may fail at once.
func (s *shard) add(e *entry) {
	s.mu.Lock()
	var err error
	switch {
	case s.ended:
		err = errEnded
	case len(s.waiting) >= maxWaiting:
		err = errFull
	default:
		s.waiting = append(s.waiting, e)
	}
	s.mu.Unlock()
	if err != nil {
		s.giveUp(e, err)
		return
	}
	s.wake.Send()
}

func (s *shard) giveUp(e *entry, err error) {
	if e.what == markEntry {
		s.m.unmarked.Inc()
	}
	e.finish(0, err)
}

// run sends batches until ctx ends, and then the waiting entries.
func (s *shard) run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.end()
			return
		}
		for batch := s.next(); len(batch) > 0; batch = s.next() {
			begun := time.Now()
			gap := batchGap
			switch {
			case !s.send(batch):
				gap = retryEvery
			case len(batch) == maxBatch:
				continue
			}
			time.Sleep(gap - time.Since(begun))
			if ctx.Err() != nil {
				break
			}
		}
	}
}

// end sends the waiting entries, unless Redis does not answer, and accepts no more.
func (s *shard) end() {
	for batch := s.next(); len(batch) > 0 && s.send(batch); batch = s.next() {
		continue
	}
	s.mu.Lock()
	left := s.waiting
	s.waiting, s.ended = nil, true
	s.mu.Unlock()
	for _, e := range left {
		s.giveUp(e, errEnded)
	}
}

// next removes a batch of waiting entries. Leases that are no longer wanted are dropped.
func (s *shard) next() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := make([]*entry, 0, min(len(s.waiting), maxBatch))
	n := 0
	for ; n < len(s.waiting) && len(batch) < maxBatch; n++ {
		if e := s.waiting[n]; e.gone.Load() {
			e.finish(0, errEnded)
		} else {
			batch = append(batch, e)
		}
	}
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	return batch
}

// send makes one round trip, and reports whether Redis answered.
func (s *shard) send(batch []*entry) bool {
	begun := time.Now()
	answers, err := s.call(batch)
	s.m.seconds.Observe(time.Since(begun).Seconds())
	s.m.entries.Observe(float64(len(batch)))
	if err != nil {
		s.failed(batch, err)
		return false
	}
	if s.failing.Swap(false) {
		s.log.Info("the dedupe ledger answers again")
	}
	for i, e := range batch {
		e.finish(answers[i], nil)
	}
	return true
}

// call runs the script on the batch. After an error it is unknown whether it ran; the same entries may be sent again.
func (s *shard) call(batch []*entry) ([]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	keys, args := make([]string, len(batch)), make([]any, 1, 1+3*len(batch))
	args[0] = s.node
	for i, e := range batch {
		keys[i] = e.id.key(s.tag)
		args = append(args, e.what, e.token, e.keep.Milliseconds())
	}
	answers, err := script.Run(ctx, s.client, shards.Run{Keys: keys, Args: args}).Int64Slice()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("%d answers for %d entries", len(answers), len(batch))
	}
	return answers, err
}

// failed logs the first failure, puts the marks of a batch back at the front and fails the other entries.
func (s *shard) failed(batch []*entry, err error) {
	switch first := !s.failing.Swap(true); {
	case first && s.open:
		s.log.Warn("the dedupe ledger does not answer; jobs are sent without it, and may be sent twice", "error", err)
	case first:
		s.log.Warn("the dedupe ledger does not answer; jobs wait until it does", "error", err)
	}
	var marks []*entry
	for _, e := range batch {
		if e.what == markEntry {
			marks = append(marks, e)
		} else {
			e.finish(0, err)
		}
	}
	s.mu.Lock()
	s.waiting = append(marks, s.waiting...)
	s.mu.Unlock()
}
