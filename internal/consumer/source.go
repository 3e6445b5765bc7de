package consumer

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
)

// maxUncommitted is how many settled jobs of one partition may wait for their commit: a crash repeats no more.
const maxUncommitted = 1000

// partition names one partition of a topic.
type partition struct {
	topic string
	id    int
}

func (p partition) String() string { return p.topic + "/" + strconv.Itoa(p.id) }

// progress is what a commit of one partition says. The version counts changes; an acknowledged commit of a version
// covers every change up to it.
type progress struct {
	offset   int64
	metadata string
	version  uint64
}

// tracked is a partition as the committer sees it.
type tracked interface {
	where() partition
	place() delivery.Place
	// see tells the watchdog what moves.
	see(maxOpen int64) sight
	// progress is what to commit now; dirty is false when the last acknowledged commit said the same.
	progress() (p progress, dirty bool)
	// committed notes that the broker has acknowledged a commit of this version.
	committed(version uint64)
	// fence says that nothing will be committed any more, though the generation has not ended yet.
	fence()
	// leave makes the source gone: it forgets its open offsets, and gives their bytes back.
	leave()
}

// ledger counts the changes of one partition and lets others wait for their commit. Its owner's lock guards it.
type ledger struct {
	changes uint64 // settles, and moves of a lane's main position
	acked   uint64 // the part of changes that is committed
	gone    bool
	fenced  bool
	onAck   chan struct{} // closed and forgotten at the next acknowledgement; nil while nobody waits
	onMove  chan struct{} // the same for anything that may let the reader go on
}

func (l *ledger) uncommitted() uint64 { return l.changes - l.acked }

// waitOn returns the channel to wait on, made when there is none.
func waitOn(c *chan struct{}) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
	}
	return *c
}

// signal wakes whoever waits.
func signal(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// acknowledge notes a commit.
func (l *ledger) acknowledge(version uint64) {
	l.acked = max(l.acked, version)
	signal(&l.onAck)
	signal(&l.onMove)
}

// stop wakes everybody: there will be no commit any more.
func (l *ledger) stop() {
	l.fenced = true
	signal(&l.onAck)
	signal(&l.onMove)
}

// flush waits until everything that has changed so far is committed, or the source is gone.
func (l *ledger) flush(ctx context.Context, mu sync.Locker, kick func()) error {
	mu.Lock()
	target := l.changes
	for {
		if l.gone || l.fenced || l.acked >= target {
			mu.Unlock()
			return nil
		}
		acked := waitOn(&l.onAck)
		mu.Unlock()
		kick()
		select {
		case <-acked:
		case <-ctx.Done():
			return ctx.Err()
		}
		mu.Lock()
	}
}

// source is one partition of ingress or of a timer: a window with a lock, and what waits on it. Its reader registers and
// waits; anybody settles; the committer asks for progress.
type source struct {
	partition
	from   delivery.Place
	budget *budget
	open   openGauge
	kick   func()       // asks the committer for a commit soon; never blocks
	end    atomic.Int64 // of what may be read, as the reader last heard
	blocks blocks

	mu     sync.Mutex // guards everything below
	window *window
	ledger
}

var (
	_ delivery.Source = (*source)(nil)
	_ tracked         = (*source)(nil)
)

// Name identifies the partition.
func (s *source) Name() string { return s.String() }

// Room implements delivery.Source for jobs that their campaign keeps in ingress.
func (s *source) Room(string, int64) { s.blocks.granted() }

// Release does nothing: only lane jobs are given back.
func (s *source) Release(string, int64) {}

// Settle implements delivery.Source.
func (s *source) Settle(offset int64, _ delivery.Outcome) {
	s.mu.Lock()
	size, ok := int64(0), false
	if !s.gone {
		size, ok = s.window.settle(offset)
	}
	full := false
	if ok {
		s.changes++
		full = s.uncommitted() == maxUncommitted
		signal(&s.onMove)
	}
	s.mu.Unlock()
	if !ok {
		return
	}
	s.open.Dec()
	s.budget.charge(-size, false)
	if full {
		s.kick()
	}
}

// Flush implements delivery.Source.
func (s *source) Flush(ctx context.Context) error { return s.flush(ctx, &s.mu, s.kick) }

// register opens a job's offset and charges its size; false when it was settled before this generation.
func (s *source) register(offset, size int64, of whose) bool {
	s.mu.Lock()
	fresh := s.window.read(offset, size, of)
	if !fresh {
		s.changes++ // base may have moved over it
	}
	s.mu.Unlock()
	if fresh {
		s.open.Inc()
		s.budget.charge(size, false)
	}
	return fresh
}

// passed notes that the log holds nothing more before offset.
func (s *source) passed(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset > s.window.next {
		s.window.pass(offset)
		s.changes++
	}
}

// position is the next offset to read.
func (s *source) position() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.next
}

// restart goes on at offset, because the log no longer holds what comes before, or was made anew. It is false while a job
// is open whose offset could be taken for that of a new record.
func (s *source) restart(offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case offset > s.window.next:
		s.window.pass(offset)
	case s.window.open > 0:
		return false
	default:
		s.window = newWindow(offset, nil)
	}
	s.changes++
	return true
}

// width is how many offsets are read and not committed, and the first of them.
func (s *source) width() (base, width int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.base, s.window.width()
}

// admits tells whether an offset may be read now: within limit of the oldest open one, and not too much uncommitted.
// Otherwise moved is closed when that may have changed.
func (s *source) admits(offset, limit int64) (ok bool, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	behind := s.uncommitted() >= maxUncommitted
	if !behind && (offset-s.window.base < limit || s.window.open == 0) {
		return true, nil
	}
	if behind {
		s.kick()
	}
	return false, waitOn(&s.onMove)
}

func (s *source) where() partition { return s.partition }

func (s *source) progress() (progress, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uncommitted() == 0 {
		return progress{}, false
	}
	return s.now(), true
}

func (s *source) kept() (progress, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.now()
	return p, max(0, s.end.Load()-p.offset)
}

// now needs the lock.
func (s *source) now() progress {
	w := s.window
	return progress{offset: w.base, metadata: encodeSettled(w.base, w.settled()), version: s.changes}
}

func (s *source) committed(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acknowledge(version)
}

func (s *source) fence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *source) leave() {
	s.mu.Lock()
	held, open := s.window.held()
	s.gone = true
	s.stop()
	s.mu.Unlock()
	s.open.Sub(float64(open))
	s.budget.charge(-held, false)
}
