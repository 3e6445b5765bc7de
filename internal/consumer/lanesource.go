package consumer

import (
	"time"

	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// laneSource is one lane. Its reader asks for verdicts and registers; any goroutine settles jobs, gives them back and
// grants room.
type laneSource struct {
	source
	wake retry.Signal // the reader may have something to do

	// The lock of source guards everything below.
	lane     *offset.Lane     // the position of source
	offering bool             // jobs of this lane have been offered, and the handler has not returned yet
	early    map[uint64]int64 // room granted while offering, before the refusal it answers has been seen
	held     bool             // what was committed cannot be read, so the lane is not
	ages     ages
}

// laneReceipt is what jobs of a lane see.
type laneReceipt struct {
	*laneSource
	era int
}

// Settle implements delivery.Receipt.
func (e laneReceipt) Settle(job *delivery.Job, _ delivery.Outcome) { e.settle(job.Offset, e.era) }

// Release gives back the job at offset, with its bytes: its campaign is left behind from the smallest released offset
// on, and these jobs are offered again after GrantCapacity.
func (e laneReceipt) Release(_ string, offset int64) {
	e.giveBack(offset, e.era, func(int64, int64) int64 { return 0 })
}

// Drop implements entrance.
func (e laneReceipt) Drop(offset int64) { e.dropOf(offset, e.era) }

// Lane is its number.
func (e laneReceipt) Lane() int { return e.ID }

var (
	_ receipt = laneReceipt{}
	_ placed  = (*laneSource)(nil)
)

func newLaneSource(at partition, l *offset.Lane, b *budget, m *metrics, kick func()) *laneSource {
	s := &laneSource{wake: retry.NewSignal(), early: map[uint64]int64{}}
	s.partition, s.from, s.budget, s.metrics, s.kick = at, delivery.FromLane, b.of(delivery.FromLane), m, kick
	s.onSettled = func() {
		if s.lane.TakeFreed() {
			s.wake.Send()
		}
	}
	s.setLane(l)
	return s
}

// campaignShare is the part of the budget that the jobs of one campaign in one lane may take.
const campaignShare = 8

// setLane sets the position. Needs the lock.
func (s *laneSource) setLane(l *offset.Lane) {
	l.Bound(s.budget.limit / campaignShare)
	s.lane, s.position = l, l
	s.edge.Store(l.Main())
}

func (s *laneSource) place(from start) error {
	l, err := offset.RestoreLane(from.offset, from.metadata)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.held = true
		return err
	}
	s.placedAt(from)
	s.setLane(l)
	s.ages.forget()
	return nil
}

// GrantCapacity reports that the campaign, whose jobs were refused before, has room in its queue for about units more. Room for
// a campaign whose refusal the reader has not seen yet is kept: the handler may make room between refusing a job and
// the return of its Offer.
func (s *laneSource) GrantCapacity(campaign string, units int64) {
	if units <= 0 {
		return
	}
	hash := delivery.CampaignHash(campaign)
	s.mu.Lock()
	if s.offering {
		s.early[hash] = units
	}
	granted := s.lane.GrantCapacity(hash, units)
	s.mu.Unlock()
	if granted {
		s.wake.Send()
	}
}

// refused takes back a job that the handler refused. Room granted since it was offered counts.
func (s *laneSource) refused(offset int64) {
	s.giveBack(offset, s.era(), func(_, early int64) int64 { return early })
}

// holdBack takes back a job that was not offered, because one before it was refused. It says nothing about room.
func (s *laneSource) holdBack(offset int64) {
	s.giveBack(offset, s.era(), func(room, _ int64) int64 { return room })
}

// giveBack takes back a job; room computes the campaign's new room from its room so far and the room granted since
// the jobs were offered.
func (s *laneSource) giveBack(at int64, era int, room func(had, early int64) int64) {
	s.mu.Lock()
	back, ok := offset.Returned{}, false
	if !s.left() && !s.forgotten(at, era) {
		back, ok = s.lane.GiveBack(at)
	}
	if ok {
		s.lane.GrantCapacity(back.Campaign, max(room(back.Capacity, s.early[back.Campaign]), 0))
		signal(&s.onMove)
	}
	s.mu.Unlock()
	if ok {
		s.metrics.openJobs[delivery.FromLane].Dec()
		s.budget.charge(-back.Size)
	}
}

// add registers a record, whose bytes are charged; see offset.Lane. Needs the lock.
func (s *laneSource) add(hash uint64, r offset.Record) {
	s.lane.Add(hash, r)
	if r.Settled {
		s.commits.Changed()
		s.metrics.lanes.done.Add(1)
		return
	}
	s.metrics.openJobs[s.from].Inc()
}

// offers records that a call of the handler begins or has ended.
func (s *laneSource) offers(begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offering = begun
	clear(s.early)
}

// mainPosition returns the next offset of the main reader.
func (s *laneSource) mainPosition() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lane.Main()
}

// waits implements surveyed.
func (s *laneSource) waits() (w waits, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.first, w.next = s.lane.Committed(), s.lane.Main()
	if w.first < w.next {
		w.since, _ = s.ages.at(w.first)
	}
	return w, !s.unplaced && !s.held
}

// dated implements surveyed.
func (s *laneSource) dated(offset int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ages.note(offset, at)
}

// reading is the lanes that are held, since a generation.
type reading struct {
	generation int32
	lanes      []*laneSource
}

// Backlog counts, for every campaign, the records that are not settled in the lanes that this daemon reads, or read
// last if it is between two generations. It is exact up to the positions of the main readers, which are almost always
// at the end of the lane. Safe for use by several goroutines; before the first assignment, Lanes is nil.
func (c *Consumer) Backlog() delivery.LanesBacklog {
	r := c.reading.Load()
	if r == nil {
		return delivery.LanesBacklog{}
	}
	b := delivery.LanesBacklog{Generation: r.generation, Lanes: make([]delivery.LaneBacklog, 0, len(r.lanes))}
	for _, s := range r.lanes {
		if lane, read := s.backlog(); read {
			b.Lanes = append(b.Lanes, lane)
		} else {
			b.Unreadable = append(b.Unreadable, lane.Lane)
		}
	}
	return b
}

// backlog counts what waits in the lane; read is false for a lane that is held, of which that is not known.
func (s *laneSource) backlog() (b delivery.LaneBacklog, read bool) {
	b.Lane = s.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, n := range s.lane.Waiting() {
		if n > 0 {
			b.Waiting = append(b.Waiting, delivery.CampaignCount{Campaign: hash, Jobs: n})
		}
	}
	return b, !s.held && !s.unplaced
}
