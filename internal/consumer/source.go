package consumer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// maxUncommitted is how many settled jobs of one partition may wait for their commit: a crash repeats at most these.
const maxUncommitted = 1000

// identified is which log a source reads.
type identified struct {
	topic   delivery.TopicID
	proven  bool    // the position is one in this log
	cuts    []int64 // where the log was cut or, at 0, made anew, by era
	doubted bool    // the log may be another one: the reader has to look before it reads on
	foreign bool    // the topic was not there, or another one has its name: a commit would be one in that
}

// source is one partition: its position and its pending commit, under a lock. Its reader registers records and waits
// for room; any goroutine settles jobs; the committer asks for progress. windowSource and laneSource embed it.
type source struct {
	partition
	from    delivery.Place
	budget  *share
	metrics *metrics
	heart   heart        // of its reader
	kick    func()       // asks the committer for a commit soon; never blocks
	edge    atomic.Int64 // the end of the readable log, from the broker's last answer

	commitFailures int       // the committer's: commits that have failed one after the other
	commitAfter    time.Time // the committer's: when the next one may be sent

	mu       sync.Mutex // guards everything below
	position position
	commits  offset.Commits
	identified
	endTurn   func()        // ends the turn of the reader
	unplaced  bool          // the position is not known yet
	onSettled func()        // called with the lock when a job is settled; may be nil
	stage     atomic.Int32  // a stage; changed with the lock
	dropped   int           // open jobs of a partition that leaves that nobody has in hand any more
	fenced    bool          // nothing will be committed any more
	onAck     chan struct{} // closed and set to nil at the next acknowledgement; nil while no goroutine waits
	onMove    chan struct{} // the same, for any change that may let the reader go on
}

// position is the progress of a partition: an offset.Window or an offset.Lane.
type position interface {
	Span() (low, high int64)
	Raise(first int64) (moved bool)
	Cut(at int64) (open int, bytes int64)
	Settle(at int64) (size int64, ok bool)
	Position() offset.Position
	Open() int
	OpenBytes() int64
}

// progress is the content of a commit of one partition. An acknowledged commit of a version covers every change up to
// it.
type progress struct {
	offset.Position
	version uint64
}

// placed is a partition whose position can be set.
type placed interface {
	surveyed
	// place sets the position before the first read. An error means that the metadata could not be read: a window begins
	// at the offset then, and a lane has no position.
	place(from start) error
}

type partition = broker.Partition

// waitOn returns the channel to wait on, and makes it if necessary.
func waitOn(c *chan struct{}) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
	}
	return *c
}

// signal wakes all waiting goroutines.
func signal(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

func (s *source) base() *source { return s }

// Name identifies the partition.
func (s *source) Name() string { return s.String() }

// settle settles the job at an offset that was read in an era.
func (s *source) settle(at int64, era int) {
	s.mu.Lock()
	size, ok := int64(0), false
	if !s.left() && !s.forgotten(at, era) {
		size, ok = s.position.Settle(at)
	}
	full := false
	if ok {
		s.commits.Changed()
		full = s.commits.Uncommitted() == maxUncommitted
		if s.onSettled != nil {
			s.onSettled()
		}
		signal(&s.onMove)
	}
	s.mu.Unlock()
	if !ok {
		return
	}
	if s.from == delivery.FromLane {
		s.metrics.lanes.done.Add(1)
	}
	s.metrics.openJobs[s.from].Dec()
	s.budget.charge(-size)
	if full {
		s.kick()
	}
}

// Flush waits until all changes so far are committed, or the source is gone.
func (s *source) Flush(ctx context.Context) error {
	s.mu.Lock()
	target := s.commits.Version()
	for {
		if s.left() || s.fenced || s.commits.Acknowledged() >= target {
			s.mu.Unlock()
			return nil
		}
		acked := waitOn(&s.onAck)
		s.mu.Unlock()
		s.kick()
		select {
		case <-acked:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
	}
}

// awaitIntake waits until the number of uncommitted jobs is below its bound and room, called with the lock, is true.
// It calls stuck when it begins to wait, and every stuckAfter from then on.
func (s *source) awaitIntake(ctx context.Context, room func() bool, stuck func()) error {
	for {
		s.mu.Lock()
		behind := s.commits.Uncommitted() >= maxUncommitted
		if !behind && room() {
			s.mu.Unlock()
			s.heart.beat("its next step")
			return ctx.Err()
		}
		moved := waitOn(&s.onMove)
		s.mu.Unlock()
		s.heart.rest()
		if behind {
			s.kick()
		}
		stuck()
		select {
		case <-moved:
		case <-time.After(stuckAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// placedAt records that the position is about to be set, and what the group has committed. A partition of which it has
// committed nothing is committed next, whether it has records or not. Needs the lock.
func (s *source) placedAt(from start) {
	if !s.unplaced {
		s.forget(s.position.Open(), s.position.OpenBytes(), 0)
		s.dropped = 0
	}
	s.topic, s.proven, s.unplaced = from.topic, from.proven, false
	s.doubted, s.foreign = false, false
	if from.committed {
		s.commits = offset.NewCommits(from.offset)
	} else {
		s.commits.Restart()
	}
	signal(&s.onMove)
}

// forget begins an era: the offsets from at on have been lost by the log, and it gives them to other records. open of
// them were open; their jobs count no longer, in the budget either. Needs the lock.
func (s *source) forget(open int, bytes, at int64) {
	s.cuts = append(s.cuts, at)
	s.metrics.openJobs[s.from].Sub(float64(open))
	s.budget.charge(-bytes)
}

// forgotten reports whether an offset that was read in an era has been lost by the log since. Needs the lock.
func (s *source) forgotten(at int64, era int) bool {
	return slices.ContainsFunc(s.cuts[era:], func(cut int64) bool { return at >= cut })
}

// era returns the number of times that the log was cut or made anew.
func (s *source) era() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cuts)
}

// cut goes on at the end of a log that has lost its last records.
func (s *source) cut(end int64, topic delivery.TopicID) {
	s.correct(topic, func(p position) {
		open, bytes := p.Cut(end)
		s.forget(open, bytes, end)
		s.edge.Store(end)
	})
}

// correct corrects the position in the log that is read.
func (s *source) correct(topic delivery.TopicID, change func(position)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.position)
	s.topic, s.doubted, s.foreign = topic, false, false
	s.commits.Changed()
	signal(&s.onMove)
}

// logPosition is where reading goes on.
type logPosition struct {
	topic     delivery.TopicID // of the log
	proven    bool             // the position is known to be one in it
	low, high int64            // the smallest of the offsets to read, and the one after all that were read or settled
}

func (s *source) logPosition() logPosition {
	s.mu.Lock()
	defer s.mu.Unlock()
	low, high := s.position.Span()
	return logPosition{topic: s.topic, proven: s.proven, low: low, high: high}
}

// isForeign reports whether another topic has the name of the one that is read, or none.
func (s *source) isForeign() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.foreign
}

// prove records that the log contains the position.
func (s *source) prove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven = true
}

// compare compares the topic that is read with the one that has its name now.
func (s *source) compare(now delivery.TopicID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.unplaced:
	case another(s.topic, now):
		s.foreign = true
		s.distrust()
	case !s.topic.Known():
		s.topic = now
	}
}

// suspect makes the reader verify the log before it reads on. Nothing is committed meanwhile if its topic was not there.
func (s *source) suspect(noTopic bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.foreign = s.foreign || noTopic
	s.distrust()
}

// confirm is compare for a log that is not read any more: what it has settled is committed if the topic is the one that was
// read. It reports whether it is another one.
func (s *source) confirm(now delivery.TopicID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left() || s.unplaced || another(s.topic, now) {
		return !s.left() && !s.unplaced
	}
	s.foreign = false
	return false
}

// distrust is suspect with the lock.
func (s *source) distrust() {
	s.doubted = true
	if s.endTurn != nil {
		s.endTurn()
	}
}

// beginTurn returns a context for a turn of the reader, which ends when the log is doubted; ok is false if it is. The
// reader calls end after the turn.
func (s *source) beginTurn(ctx context.Context) (turn context.Context, end func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doubted {
		return nil, nil, false
	}
	turn, s.endTurn = context.WithCancel(ctx)
	return turn, s.endTurn, true
}

// progress returns what to commit now; dirty is false if the last acknowledged commit contained the same, or would not be one
// in this log.
func (s *source) progress() (p progress, dirty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced || s.unplaced || s.foreign || s.commits.Uncommitted() == 0 {
		return progress{}, false
	}
	return s.now(), true
}

// storedPosition returns the position to be stored, which is that of the next commit; ok is false while it is not known.
func (s *source) storedPosition() (p delivery.Position, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unplaced || s.stage.Load() != staying {
		return delivery.Position{}, false
	}
	now := s.now()
	return delivery.Position{
		Topic: s.Topic, Partition: s.ID, Committed: now.Offset, Metadata: now.Metadata, TopicID: s.topic,
	}, true
}

// now returns the current progress. Needs the lock.
func (s *source) now() progress {
	p := s.position.Position()
	if p.Trimmed {
		s.metrics.trimmed.Inc()
	}
	return progress{p, s.commits.Version()}
}

// committed records that the broker has acknowledged a commit of p.
func (s *source) committed(p progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits.Acknowledge(p.version, p.Offset)
	signal(&s.onAck)
	signal(&s.onMove)
}

// lowWatermark returns the offset before which no later owner reads again, given the stored position kept; false if
// the group has committed nothing.
func (s *source) lowWatermark(kept int64) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits.LowWatermark(kept)
}

// fence makes the source commit nothing from now on.
func (s *source) fence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// stop wakes all waiting goroutines. Needs the lock.
func (s *source) stop() {
	s.fenced = true
	signal(&s.onAck)
	signal(&s.onMove)
}

// leave marks the source as gone: it forgets its open offsets and returns their bytes to the budget.
func (s *source) leave() {
	s.mu.Lock()
	if s.left() {
		s.mu.Unlock()
		return
	}
	bytes, open := s.position.OpenBytes(), s.position.Open()
	s.stage.Store(hasLeft)
	s.stop()
	s.mu.Unlock()
	s.metrics.openJobs[s.from].Sub(float64(open))
	s.budget.charge(-bytes)
}
