package pacer

import (
	"maps"
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// effective is a campaign of the catalog with its schedule applied at the current time.
type effective struct {
	row      *delivery.Campaign // as the catalog has it
	looked   int                // the number of the catalog in which it was looked up last
	campaign *delivery.Campaign // at the current rate and revision; used by queues and asks
	sink     *sinkState         // nil while the campaign's sink is not configured
	sinkless retry.Outage       // says so once
	zoneless retry.Outage       // likewise, of jobs whose zone is not known
	failing  retry.Outage       // its jobs fail, and none has been taken since
	next     time.Time          // by the wall clock, when the schedule has to be looked at again; zero: never
	index    int                // in the change heap, -1 when not there
	account  *delivery.Account
}

// campaigns are those of the catalog that have had jobs here, with their schedules applied. Code outside of this file
// uses only campaigns made here: their revisions cannot be compared with those of the catalog.
type campaigns struct {
	resolve func(*delivery.Campaign) *sinkState // the campaign's sink
	counts  *counts                             // is told which campaigns there are

	snapshot  *delivery.Snapshot
	number    int       // of the catalogs so far
	begun     time.Time // when the first catalog was read: before, no campaign is known to be gone
	byID      map[string]*effective
	changes   timeHeap[*effective]          // by the wall clock
	gone      map[string]time.Time          // since when a campaign is not in the catalog any more
	lost      map[string]*delivery.Campaign // lost with most others at once, and in force until that is seen again
	lostUntil time.Time
}

func newCampaigns(resolve func(*delivery.Campaign) *sinkState, c *counts) campaigns {
	return campaigns{
		resolve: resolve, counts: c, byID: map[string]*effective{}, gone: map[string]time.Time{},
		changes: timeHeap[*effective]{index: func(e *effective) *int { return &e.index }},
	}
}

// leastLost is how many campaigns a catalog must lose at once, and more than half of them, not to be believed: fewer are
// deleted by people.
const leastLost = 3

// use applies a new snapshot. A catalog without most campaigns comes from an empty database, or a table being restored: the lost
// campaigns stay in force until the loss is seen again after the grace. lost is their number.
func (s *campaigns) use(snapshot *delivery.Snapshot, grace time.Duration, now instant) (lost int) {
	was := s.snapshot
	s.snapshot = snapshot
	s.number++
	if was == nil {
		s.begun = now.wall
		return 0
	}
	live := 0
	missing := map[string]*delivery.Campaign{}
	for id := range snapshot.Changed(was) {
		if c := was.Campaign(id); c != nil && snapshot.Campaign(id) == nil {
			missing[id] = c
			if standingOf(c, &sinkState{}, now.wall) < cancelled {
				live++
			}
		}
	}
	if live >= leastLost && 2*len(missing) > len(was.Campaigns) {
		if len(s.lost) == 0 {
			s.lost, s.lostUntil = map[string]*delivery.Campaign{}, now.wall.Add(grace)
		}
		maps.Copy(s.lost, missing)
		return live
	}
	for id := range missing {
		s.forget(id, now)
	}
	for id := range s.lost {
		if snapshot.Campaign(id) != nil {
			delete(s.lost, id)
		}
	}
	if snapshot.LoadedAt.After(s.lostUntil) {
		for id := range s.lost {
			s.forget(id, now)
		}
		s.lost = nil
	}
	return 0
}

// row is the campaign as the catalog has it, nil when it has none.
func (s *campaigns) row(id string) *delivery.Campaign {
	if row := s.snapshot.Campaign(id); row != nil {
		return row
	}
	return s.lost[id]
}

// absent reports whether a catalog that was loaded after the grace still lacks a campaign without a row.
func (s *campaigns) absent(id string, grace time.Duration) bool {
	since, gone := s.gone[id]
	if !gone {
		since = s.begun
	}
	return s.snapshot != nil && s.snapshot.LoadedAt.Sub(since) > grace
}

// overdue reports whether a job has been in memory for too long: its offset must not stay open, in ingress unless its campaign keeps its jobs
// there. A lane, too, is read no further than some thousand jobs beyond the first that is open.
func (s *campaigns) overdue(j *delivery.Job, openAge time.Duration, now instant) bool {
	if e := s.byID[j.Campaign]; j.From != delivery.FromLane && e != nil && remains(j, e.campaign) {
		return false
	}
	return now.wall.Sub(j.ReadAt) > openAge
}

// effective is the campaign with this id, its schedule applied, nil while it is unknown.
func (s *campaigns) effective(id string, now instant) *effective {
	e := s.byID[id]
	if e != nil && e.looked == s.number {
		return e
	}
	row := s.row(id)
	switch {
	case row == nil && e == nil:
		return nil
	case row == nil:
		s.forget(id, now)
		return nil
	case e == nil:
		e = &effective{index: -1, account: s.counts.know(id)}
		s.byID[id] = e
	}
	if e.looked = s.number; e.row != row {
		e.row = row
		s.refresh(e, now.wall)
	}
	return e
}

func (s *campaigns) refresh(e *effective, now time.Time) {
	e.campaign, e.next = e.row.At(now), e.row.NextChange(now)
	e.sink = s.resolve(e.campaign)
	if e.next.IsZero() {
		s.changes.remove(e)
	} else {
		s.changes.set(e, e.next.UnixMicro())
	}
}

// change is the next campaign whose schedule changes it by now, brought to now; nil when there is none. Changes are
// steps of ramps, hours that begin and end, starts and ends.
func (s *campaigns) change(now time.Time) *effective {
	if s.changes.len() == 0 || s.changes.first().item.next.After(now) {
		return nil
	}
	e := s.changes.first().item
	s.refresh(e, now)
	return e
}

// nextChange is the local time of the next change by a schedule; ok is false if there is none.
func (s *campaigns) nextChange(now instant) (at int64, ok bool) {
	if s.changes.len() == 0 {
		return 0, false
	}
	return now.in(s.changes.first().item.next.Sub(now.wall)) + 1, true // not a moment before it
}

// forget records that the campaign is not in the catalog any more.
func (s *campaigns) forget(id string, now instant) {
	if e := s.byID[id]; e != nil {
		delete(s.byID, id)
		s.changes.remove(e)
	}
	s.gone[id] = now.wall
}

// countsKeptFor is how long the counts of a campaign are kept after its row was deleted: until they have been scraped, and
// its jobs in flight are settled.
const countsKeptFor = 10 * time.Minute

// dropCounts removes the counts of campaigns that were deleted long ago.
func (s *campaigns) dropCounts(grace time.Duration, now instant) {
	for id, since := range s.gone {
		switch {
		case s.row(id) != nil: // it was created again
			delete(s.gone, id)
		case now.wall.Sub(since) > countsKeptFor:
			s.counts.forget(id)
			if now.wall.Sub(since) > 2*grace { // long enough for a catalog loaded after the grace
				delete(s.gone, id)
			}
		}
	}
}

// standing says whether a campaign's jobs may be sent now.
type standing uint8

const (
	sending   standing = iota
	held               // paused, rate 0, out of hours, before its start, no such sink, or unusable: jobs wait (see overflow)
	cancelled          // jobs settle as cancelled
	completed          // jobs settle as expired
)

// standingOf tells what the jobs of a campaign, whose sink is nil when it is not configured, may do at now.
func standingOf(c *delivery.Campaign, sink *sinkState, now time.Time) standing {
	switch {
	case c.Status == delivery.StatusCancelled:
		return cancelled
	case c.Status == delivery.StatusCompleted, c.Ended(now):
		return completed
	case c.Status != delivery.StatusActive, c.Invalid != "", c.Rate.Zero(), !c.Active(now), sink == nil:
		return held
	}
	return sending
}

// lacksSink reports whether the campaign is held only because its sink is not configured; true once, until
// it has a sink.
func (e *effective) lacksSink(now time.Time) bool {
	if e.sink != nil {
		e.sinkless.Worked()
		return false
	}
	return standingOf(e.campaign, &sinkState{}, now) == sending && e.sinkless.Failed()
}

const noRevision = math.MaxInt64 // no slot is of it, or of a later one

// validFrom is the oldest revision whose slots may still be used when a campaign has changed from was to is. If nothing but the rate has
// changed, such slots may have been granted already: another daemon has told the store of the change first.
func validFrom(was, is *delivery.Campaign) (revision int64) {
	if was == nil || is == nil || was.Status != is.Status || was.Sink != is.Sink || was.Invalid != is.Invalid {
		return noRevision
	}
	return is.Revision
}

// changed reports whether slots granted under a may no longer be used under b.
func changed(a, b *delivery.Campaign) bool {
	return a == nil || b == nil || a.Rate != b.Rate || a.Status != b.Status || a.Sink != b.Sink || a.Invalid != b.Invalid
}
