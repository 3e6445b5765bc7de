package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// laneSource is one lane with a lock. Its reader asks for verdicts and registers; anybody settles, gives back and grants
// room; the committer asks for progress.
type laneSource struct {
	partition
	budget  *budget
	metrics *metrics
	kick    func()
	wake    chan struct{} // receives when the reader may have something to do; holds one
	end     atomic.Int64  // of what may be read, as the reader last heard

	mu   sync.Mutex // guards everything below
	lane *lane
	ledger
	held     int64            // bytes of open offsets
	offering bool             // jobs of this lane are with the handler, which has not answered yet
	early    map[uint64]int64 // room granted while offering: the refusal it answers is still on its way
	visitors map[uint64]*visitor
}

// visitor is a campaign that had jobs in this lane since the generation began, or is pinned to it, until the lane is found
// drained of it.
type visitor struct {
	id    string
	since time.Time // when its backlog here was first found below a second of its rate; zero when it was not
}

var (
	_ delivery.Source = (*laneSource)(nil)
	_ tracked         = (*laneSource)(nil)
)

func newLaneSource(p partition, l *lane, b *budget, m *metrics, kick func()) *laneSource {
	s := &laneSource{
		partition: p, budget: b, metrics: m, kick: kick, wake: make(chan struct{}, 1), lane: l,
		early: map[uint64]int64{}, visitors: map[uint64]*visitor{},
	}
	s.end.Store(l.main)
	return s
}

// Name identifies the lane.
func (s *laneSource) Name() string { return s.String() }

// Settle implements delivery.Source.
func (s *laneSource) Settle(offset int64, _ delivery.Outcome) {
	s.mu.Lock()
	size, ok := int64(0), false
	if !s.gone {
		size, ok = s.lane.settle(offset)
	}
	full, freed := false, false
	if ok {
		s.changes++
		s.held -= size
		full, freed = s.uncommitted() == maxUncommitted, s.lane.freed
		s.lane.freed = false
		signal(&s.onMove)
	}
	s.mu.Unlock()
	if !ok {
		return
	}
	s.metrics.laneDone.Add(1)
	s.metrics.open(delivery.FromLane).Dec()
	s.budget.charge(-size, true)
	if full {
		s.kick()
	}
	if freed {
		s.nudge()
	}
}

// Flush implements delivery.Source.
func (s *laneSource) Flush(ctx context.Context) error { return s.flush(ctx, &s.mu, s.kick) }

// Room implements delivery.Source. Room for a campaign whose refusal the reader has not seen yet is kept for it: the
// handler may make room between refusing a job and our hearing of it.
func (s *laneSource) Room(campaign string, units int64) {
	if units <= 0 {
		return
	}
	hash := campaignHash(campaign)
	s.mu.Lock()
	if s.offering {
		s.early[hash] = units
	}
	granted := s.lane.grantRoom(hash, units)
	s.mu.Unlock()
	if granted {
		s.nudge()
	}
}

// Release implements delivery.Source.
func (s *laneSource) Release(_ string, offset int64) {
	s.giveBack(offset, func(int64, int64) int64 { return 0 })
}

// refused takes a job back that the handler did not take. Room granted since it was offered counts.
func (s *laneSource) refused(offset int64) {
	s.giveBack(offset, func(_, early int64) int64 { return early })
}

// withheld takes a job back that was not offered, because one before it was refused. It says nothing about room.
func (s *laneSource) withheld(offset int64) {
	s.giveBack(offset, func(room, _ int64) int64 { return room })
}

// giveBack takes a job back; room decides, from the campaign's room so far and the room granted since the jobs were
// offered, what room it has now.
func (s *laneSource) giveBack(offset int64, room func(had, early int64) int64) {
	s.mu.Lock()
	size, ok := int64(0), false
	if c := s.lane.at[offset]; c != nil && !s.gone {
		units := room(c.room, s.early[c.hash])
		if size, ok = s.lane.giveBack(offset); ok {
			s.held -= size
			s.lane.grantRoom(c.hash, max(units, 0))
		}
	}
	s.mu.Unlock()
	if ok {
		s.metrics.open(delivery.FromLane).Dec()
		s.budget.charge(-size, true)
	}
}

// addSlot registers a record; see lane.add. Needs the lock.
func (s *laneSource) addSlot(hash uint64, id string, slot laneSlot) {
	s.lane.add(hash, id, slot)
	if slot.done {
		s.changes++
		s.metrics.laneDone.Add(1)
		return
	}
	s.held += slot.size
	s.metrics.open(delivery.FromLane).Inc()
	s.budget.charge(slot.size, true)
}

// offers brackets a call of the handler.
func (s *laneSource) offers(begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offering = begun
	clear(s.early)
}

// nudge wakes the reader.
func (s *laneSource) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// admits tells whether the reader may read: not too much is uncommitted.
func (s *laneSource) admits() (ok bool, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uncommitted() < maxUncommitted {
		return true, nil
	}
	s.kick()
	return false, waitOn(&s.onMove)
}

// mainPosition is the next offset of the main reader.
func (s *laneSource) mainPosition() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lane.main
}

func (s *laneSource) where() partition { return s.partition }

func (s *laneSource) progress() (progress, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uncommitted() == 0 {
		return progress{}, false
	}
	return s.now(), true
}

func (s *laneSource) kept() (progress, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.now()
	return p, max(0, s.end.Load()-p.offset)
}

// now needs the lock.
func (s *laneSource) now() progress {
	offset, metadata, trimmed := encodeLane(s.lane.positions())
	if trimmed {
		s.metrics.trimmed.Inc()
	}
	return progress{offset: offset, metadata: metadata, version: s.changes}
}

func (s *laneSource) committed(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acknowledge(version)
}

func (s *laneSource) fence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *laneSource) leave() {
	s.mu.Lock()
	held, open := s.held, len(s.lane.at)
	s.held = 0
	s.gone = true
	s.stop()
	s.mu.Unlock()
	s.metrics.open(delivery.FromLane).Sub(float64(open))
	s.budget.charge(-held, true)
}

// drainedFor is how long a campaign's backlog in its lane stays below a second of its rate before new jobs go direct.
const drainedFor = 10 * time.Second

// drained lists the campaigns whose backlog here has been below one second of their rate for long enough: not left
// behind, with the main reader at the end of the log. A campaign is listed once, until it has jobs here again.
func (s *laneSource) drained(now time.Time, rate func(string) (float64, bool)) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for hash, v := range s.visitors {
		if !s.small(hash, v.id, rate) {
			v.since = time.Time{}
			continue
		}
		if v.since.IsZero() {
			v.since = now
		}
		if now.Sub(v.since) >= drainedFor {
			ids = append(ids, v.id)
			delete(s.visitors, hash)
		}
	}
	return ids
}

// again has a campaign listed once more later on.
func (s *laneSource) again(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visited(campaignHash(id), id)
}

// expect notes that a campaign is pinned here. Unless that is known, the reader is sent to see where the log ends: a
// position that is level with an end of long ago says nothing about what has come since.
func (s *laneSource) expect(id string) {
	hash := campaignHash(id)
	s.mu.Lock()
	known := s.visitors[hash] != nil
	if !known {
		s.visited(hash, id)
		s.end.Store(max(s.end.Load(), s.lane.main+1))
	}
	s.mu.Unlock()
	if !known {
		s.nudge()
	}
}

// visited notes that a campaign has jobs here. Needs the lock.
func (s *laneSource) visited(hash uint64, id string) {
	if s.visitors[hash] == nil {
		s.visitors[hash] = &visitor{id: id}
	}
}

// small tells whether next to nothing of the campaign waits here. Needs the lock.
func (s *laneSource) small(hash uint64, id string, rate func(string) (float64, bool)) bool {
	if s.lane.main < s.end.Load() {
		return false
	}
	c := s.lane.campaigns[hash]
	if c == nil {
		return true
	}
	if c.behind {
		return false
	}
	perSecond, known := 0.0, false
	if rate != nil {
		perSecond, known = rate(id)
	}
	return c.units == 0 || known && float64(c.units) <= perSecond
}
