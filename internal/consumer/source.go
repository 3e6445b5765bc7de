package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// maxUncommitted is how many settled jobs of one partition may wait for their commit: a crash repeats at most these.
const maxUncommitted = 1000

// source is one partition: its position in one log and its pending commit, under a lock. Its reader registers records and waits
// for room; any goroutine settles jobs, gives them back and grants room; the committer asks for progress. When the partition gets
// another log, it gets another source: what becomes of the jobs of this one has no effect on that log.
//
// The methods of a window are in window.go, those of a lane in lane.go.
type source struct {
	partition
	from    delivery.Place
	topic   delivery.TopicID // of the log
	budget  *share
	metrics *metrics
	heart   heart           // of its reader
	kick    func()          // asks the committer for a commit soon; never blocks
	edge    atomic.Int64    // the end of the readable log, from the broker's last answer
	stage   atomic.Int32    // a stage; changed with the lock
	proven  atomic.Bool     // the position is one in this log
	wake    retry.Signal    // room was granted, or a lane may have something else to read
	stands  atomic.Bool     // its reader, of ingress or a timer, waits for anything but records
	told    *told           // of room
	repeats *offset.Repeats // recognises records of a lane or a timer that were written twice, because the answer to the first write was lost

	commitAfter time.Time // the committer's: when the next commit may be sent
	counted     int64     // the counting's: where the reader was at its last round
	seenFirst   int64     // the survey's: the first offset that was not settled when it last looked,
	firstSince  time.Time // and since when

	mu             sync.Mutex // guards everything below
	position       position
	window         *offset.Window // the position of ingress or of a timer,
	tally          *offset.Tally  // and what waits there,
	lane           *offset.Lane   // or the position of a lane
	changes, acked uint64         // of the position, and how many of them are in the last acknowledged commit
	committed      int64          // the offset of that; -1 for none
	stored         int64          // that of the stored position; 0 for none
	commitFailures int            // commits that have failed one after the other
	refusals       int            // of these, those that the broker has refused
	endTurn        func()         // ends the turn of the reader
	ages           ages
	gone           bool // nothing is settled or committed any more
	// onMove is closed and set to nil at any change that may let the reader go on, and at the next answer to a commit; nil while no
	// goroutine waits.
	onMove chan struct{}

	// Of a lane:
	offering bool             // jobs of this lane have been offered, and the handler has not returned yet
	early    map[uint64]int64 // room granted while offering, before the refusal it answers has been seen
}

// position is the progress of a partition: an offset.Window or an offset.Lane.
type position interface {
	Committed() int64
	Span() (low, high int64)
	Raise(first int64) (moved bool)
	Cut(at int64)
	Settle(at int64) (size int64, ok bool)
	Position() offset.Position
	Open() int
	OpenBytes() int64
}

// progress is the content of a commit of one partition. It covers as many changes of the source as changes says.
type progress struct {
	offset.Position
	changes uint64
}

type partition = broker.Partition

// start is where reading a log begins.
type start struct {
	offset    int64
	metadata  string
	committed bool             // by the group
	topic     delivery.TopicID // of the log
	proven    bool             // the offset is known to be one in this log
	held      bool             // it is not known: the partition is not read
	end       int64            // of a log that has lost what lay beyond; 0 otherwise
}

// newSource makes the source of a partition that begins there. If the metadata cannot be read, it returns an error: with a source
// that begins at the offset, or without one for a lane.
func newSource(
	at partition, from delivery.Place, begin start, b *budget, m *metrics, origins *offset.Origins, told *told, kick func(),
) (s *source, err error) {
	s = &source{
		partition: at, from: from, budget: b.of(from), metrics: m, kick: kick, topic: begin.topic,
		repeats: offset.NewRepeats(origins), told: told, wake: retry.NewSignal(), early: map[uint64]int64{},
	}
	s.proven.Store(begin.proven)
	if from == delivery.FromLane {
		if s.lane, err = offset.RestoreLane(begin.offset, begin.metadata); err != nil {
			return nil, err
		}
		s.lane.Bound(s.budget.limit / campaignShare)
		s.edge.Store(s.lane.Main())
		s.position = s.lane
	} else {
		s.window, err = offset.RestoreWindow(begin.offset, begin.metadata)
		s.position = s.window
	}
	if begin.end > 0 {
		s.position.Cut(begin.end)
		s.edge.Store(begin.end)
	}
	s.tally = offset.NewTally(s.position.Committed())
	if s.committed = begin.offset; !begin.committed { // it is committed next, whether it has records or not
		s.committed, s.changes = -1, 1
	}
	return s, err
}

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

// Name implements delivery.Source.
func (s *source) Name() string { return s.String() }

// Place implements delivery.Source.
func (s *source) Place() delivery.Place { return s.from }

// Settle implements delivery.Receipt.
func (s *source) Settle(job *delivery.Job, _ delivery.Outcome) {
	s.settle(job.Offset, job.Campaign, inTimer(job))
}

func (s *source) settle(at int64, campaign, destination string) {
	hash := delivery.CampaignHash(campaign)
	s.mu.Lock()
	size, ok := int64(0), false
	if !s.gone {
		size, ok = s.position.Settle(at)
	}
	full := false
	if ok {
		s.changes++
		if s.window != nil {
			s.tally.Settle(at, hash, destination)
		}
		full = s.changes-s.acked == maxUncommitted
		if s.lane != nil && s.lane.TakeFreed() {
			s.wake.Send()
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

// GrantCapacity implements delivery.Source.
func (s *source) GrantCapacity(campaign string, units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lane != nil {
		s.grantLane(campaign, units)
	} else {
		s.wake.Send()
	}
}

// Release implements delivery.Source.
func (s *source) Release(offset int64) {
	if s.lane != nil {
		s.giveBack(offset, true)
	} else {
		s.budget.charge(-s.reopen(offset))
	}
}

// awaitIntake waits until the number of uncommitted jobs is below its bound and room, called with the lock, is true.
// It calls stuck when it begins to wait, and every stuckAfter from then on.
func (s *source) awaitIntake(ctx context.Context, room func() bool, stuck func()) error {
	for {
		s.mu.Lock()
		behind := s.changes-s.acked >= maxUncommitted
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

// compare ends the turn of the reader if another topic has the name of the one that is read by now.
func (s *source) compare(now delivery.TopicID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if another(s.topic, now) && s.endTurn != nil {
		s.endTurn()
	}
}

// beginTurn returns a context for a turn of the reader, which ends when the log is another one. The reader calls end after the turn.
func (s *source) beginTurn(ctx context.Context) (turn context.Context, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn, s.endTurn = context.WithCancel(ctx)
	return turn, s.endTurn
}

// oldest returns the first offset that is not settled, the next to be read, and the time of the job at the first; zero if it is not known.
func (s *source) oldest() (first, next int64, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.position.Committed()
	if _, next = s.position.Span(); first < next {
		since, _ = s.ages.at(first)
	}
	return first, next, since
}

// dated notes the time of the job at an offset.
func (s *source) dated(offset int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ages.note(offset, at)
}
