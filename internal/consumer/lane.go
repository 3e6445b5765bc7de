package consumer

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// campaignShare is the part of the budget that the jobs of one campaign in one lane may take.
const campaignShare = 8

// grantLane reports that the campaign, whose jobs were refused before, has room in its queue for about units more. Room for
// a campaign whose refusal the reader has not seen yet is kept: the handler may make room between refusing a job and
// the return of its Offer. Needs the lock.
func (s *source) grantLane(campaign string, units int64) {
	if units <= 0 {
		return
	}
	hash := delivery.CampaignHash(campaign)
	s.told.note(hash, time.Now())
	if s.offering {
		s.early[hash] = units
	}
	if s.lane.GrantCapacity(hash, units) {
		s.wake.Send()
	}
}

// told remembers which campaigns any lane of this daemon was told of room for since the last probes. The zero value is ready; it is safe for
// concurrent use.
type told struct {
	mu          sync.Mutex
	since       time.Time
	now, before map[uint64]bool
}

// note records that a lane was told at now.
func (t *told) note(campaign uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if age := now.Sub(t.since); age > probeEvery {
		if t.before = t.now; age > 2*probeEvery {
			t.before = nil
		}
		t.since, t.now = now, map[uint64]bool{}
	}
	t.now[campaign] = true
}

// lately reports whether a lane was told within the time between two probes before now, at least.
func (t *told) lately(campaign uint64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	age := now.Sub(t.since)
	return age <= 2*probeEvery && t.now[campaign] || age <= probeEvery && t.before[campaign]
}

// waits reports whether a campaign waits for its turn among the lanes of this daemon.
func (s *source) waits(campaign uint64) bool { return s.told.lately(campaign, time.Now()) }

// giveBack takes back a job. If the handler refused or released it, the campaign has only the room granted since the offer. If it was not
// offered, because an earlier job was refused, that says nothing about room.
func (s *source) giveBack(at int64, offered bool) {
	s.mu.Lock()
	back, ok := offset.Returned{}, false
	if !s.gone {
		back, ok = s.lane.GiveBack(at)
	}
	if ok {
		room := s.early[back.Campaign]
		if !offered {
			room = max(0, back.Capacity)
		}
		s.lane.GrantCapacity(back.Campaign, room)
		signal(&s.onMove)
	}
	s.mu.Unlock()
	if ok {
		s.metrics.openJobs[delivery.FromLane].Dec()
		s.budget.charge(-back.Size)
	}
}

// add registers a record, whose bytes are charged; see offset.Lane. Needs the lock.
func (s *source) add(hash uint64, r offset.Record) {
	s.lane.Add(hash, r)
	if r.Settled {
		s.changes++
		s.metrics.lanes.done.Add(1)
		return
	}
	s.metrics.openJobs[s.from].Inc()
}

// offers records that a call of the handler begins or has ended.
func (s *source) offers(begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offering = begun
	clear(s.early)
}

// mainPosition returns the next offset of the main reader.
func (s *source) mainPosition() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lane.Main()
}

// reads reports whether there is something to read before the end of the log.
func (s *source) reads(end int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, behind := s.lane.Candidate()
	return behind || s.lane.Main() < end
}

// reading is what is held, since a generation.
type reading struct {
	generation int32
	held       []*holding
}

// Backlog counts, for every campaign, the records that are not settled in the lanes that this daemon reads, or read
// last if it is between two generations. It is exact up to the positions of the main readers, which are almost always
// at the end of the lane. So it does in partitions of ingress and timers that it reads. Safe for use by several goroutines; before the first
// assignment, Lanes is nil.
func (c *Consumer) Backlog() delivery.LanesBacklog {
	r := c.reading.Load()
	if r == nil {
		return delivery.LanesBacklog{}
	}
	b := delivery.LanesBacklog{Generation: r.generation, Lanes: []delivery.LaneBacklog{}, Destinations: map[string]int64{}}
	var direct [len(placeNames)]counts
	for _, h := range r.held {
		switch s := h.source.Load(); {
		case s == nil && h.passed.Load() && h.from == delivery.FromLane:
			b.Unreadable = append(b.Unreadable, h.ID)
		case s == nil:
		case h.from == delivery.FromLane:
			b.Lanes = append(b.Lanes, s.backlog())
		default:
			direct[h.from] = direct[h.from].plus(s, b.Destinations)
		}
	}
	b.Ingress, b.Timers = slices.Collect(maps.Values(direct[delivery.FromIngress])), slices.Collect(maps.Values(direct[delivery.FromTimer]))
	return b
}

// counts are what waits in partitions of ingress or timers, by campaign.
type counts map[uint64]delivery.CampaignCount

// plus adds what waits in one that is held, to the counts of its destinations, too.
func (c counts) plus(s *source, to map[string]int64) counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return c
	}
	if c == nil {
		c = counts{}
	}
	for n := range s.tally.Counts(s.window.Committed()) {
		c[n.Campaign] = c[n.Campaign].Plus(n)
	}
	for destination, n := range s.tally.Destinations() {
		to[destination] += n
	}
	return c
}

// backlog counts what waits in the lane.
func (s *source) backlog() (b delivery.LaneBacklog) {
	b.Lane = s.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, n := range s.lane.Waiting() {
		if n > 0 {
			b.Waiting = append(b.Waiting, delivery.CampaignCount{Campaign: hash, Jobs: n})
		}
	}
	return b
}
