package dedupe

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// batchGap is the least time between the beginnings of two round trips: what comes in it goes in one.
	batchGap = time.Millisecond
	maxBatch = 256 // entries of one round trip; Redis works on it for well below a millisecond
	// maxWaiting bounds the entries of a shard that wait to be sent. Claims and marks of calls in flight are far fewer;
	// it is marks that nobody waits for that would add up while Redis does not answer.
	maxWaiting   = 65_536
	batchTimeout = 500 * time.Millisecond // of one round trip
	retryEvery   = 100 * time.Millisecond // between round trips while they fail
)

//go:embed lua/ledger.lua
var source string

var script = redis.NewScript(source)

var (
	errFull  = errors.New("too many jobs wait for the dedupe ledger")
	errEnded = errors.New("the dedupe ledger has ended")
)

// The kinds of entries, as the script spells them.
const (
	claimEntry   = "claim"
	markEntry    = "mark"
	releaseEntry = "release"
)

// The answers of the script to a claim; any other is for how many milliseconds another node has the job.
const (
	claimed   = 0
	delivered = -1
)

// entry is one thing to be done in the ledger.
type entry struct {
	what  string
	id    id
	token string
	keep  time.Duration // how long Redis keeps the value

	answer int64         // valid once done is closed
	err    error         // likewise
	done   chan struct{} // closed when the entry was worked off
	gone   atomic.Bool   // a claim that nobody wants any more
}

func newEntry(what string, i id, token string, keep time.Duration) *entry {
	return &entry{what: what, id: i, token: token, keep: keep, done: make(chan struct{})}
}

func (e *entry) finish(answer int64, err error) {
	e.answer, e.err = answer, err
	close(e.done)
}

// shard gathers the entries of a shard's jobs and sends them in batches, one at a time: a daemon that sends 10,000 jobs
// a second makes at most 1,000 round trips. An entry that finds nothing under way goes at once.
//
// Marks are kept until Redis has taken them, in their order and before any later entry of this node. What else fails is
// told so.
type shard struct {
	client redis.UniversalClient
	tag    string
	node   string
	m      *metrics
	log    *slog.Logger // says which shard it is
	open   bool         // jobs are sent while Redis does not answer

	failing atomic.Bool // the last round trip failed
	wake    chan struct{}

	mu      sync.Mutex
	waiting []*entry // under mu
	ended   bool     // under mu
}

// add lets the entry wait for its round trip. It may fail at once.
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
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *shard) giveUp(e *entry, err error) {
	if e.what == markEntry {
		s.m.unmarked.Inc()
	}
	e.finish(0, err)
}

// run sends batches until ctx ends, and then what still waits.
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

// end sends what waits, unless Redis does not answer, and takes nothing more.
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

// next takes a batch of what waits. Claims that nobody wants any more are dropped.
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

// send makes one round trip, and tells whether Redis answered.
func (s *shard) send(batch []*entry) bool {
	begun := time.Now()
	answers, err := s.call(batch)
	s.m.seconds.Observe(time.Since(begun).Seconds())
	s.m.entries.Observe(float64(len(batch)))
	if err != nil {
		if !s.failing.Swap(true) {
			s.warn(err)
		}
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

// warn says that Redis begins not to answer.
func (s *shard) warn(err error) {
	if s.open {
		s.log.Warn("the dedupe ledger does not answer; jobs are sent without it, and may be sent twice", "error", err)
		return
	}
	s.log.Warn("the dedupe ledger does not answer; jobs wait until it does", "error", err)
}

// call has the script work off the batch. Whether it did is unknown after an error; the same entries may be sent again.
func (s *shard) call(batch []*entry) ([]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	keys, args := make([]string, len(batch)), make([]any, 1, 1+3*len(batch))
	args[0] = s.node
	for i, e := range batch {
		keys[i] = e.id.key(s.tag)
		args = append(args, e.what, e.token, e.keep.Milliseconds())
	}
	answers, err := script.Run(ctx, s.client, keys, args...).Int64Slice()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("%d answers for %d entries", len(answers), len(batch))
	}
	return answers, err
}

// failed puts the marks of a batch back to where they were and tells the others.
func (s *shard) failed(batch []*entry, err error) {
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
