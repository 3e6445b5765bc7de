package delivery

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// Snapshot is the catalog at one moment. It is immutable once published.
type Snapshot struct {
	Revision     int64
	LoadedAt     time.Time
	Campaigns    map[string]*Campaign
	Quotas       map[string]*Quota
	Destinations map[string]*Destination // of pacer.destinations, by id
	// Stores is since when each shard of the quota store has the data that it has, if those before were lost. Shards with an unknown time are
	// left out.
	Stores       map[int]time.Time
	Installation Installation

	serial  int64      // of the snapshots that followed each other; 0: not known
	changes [][]string // campaigns that differ from the one before, in each of the last ones
}

// Campaign looks a campaign up; nil when it is unknown.
func (s *Snapshot) Campaign(id string) *Campaign {
	if s == nil {
		return nil
	}
	return s.Campaigns[id]
}

// Destination looks a destination of pacer.destinations up; nil when it is unknown.
func (s *Snapshot) Destination(id string) *Destination {
	if s == nil {
		return nil
	}
	return s.Destinations[id]
}

// Shared returns the quotas that all jobs of their campaigns share, in no order: those that are not keyed. It is nil only without a snapshot.
func (s *Snapshot) Shared() (list []*Quota) {
	if s == nil {
		return nil
	}
	list = make([]*Quota, 0, len(s.Quotas))
	for _, q := range s.Quotas {
		if q.Per == "" {
			list = append(list, q)
		}
	}
	return list
}

// MostIn is the most units that the rates of campaigns allow in a time, by quota.
func (s *Snapshot) MostIn(d time.Duration) map[string]int64 {
	most := map[string]int64{}
	for _, c := range s.Campaigns {
		for _, q := range c.Quotas {
			if q.Covers(c.ID) {
				most[q.ID] = min(most[q.ID]+min(c.Rate.UnitsIn(d)+1, mostUnits)+c.Burst, mostUnits)
			}
		}
	}
	return most
}

// mostUnits is more than any quota allows.
const mostUnits = 1 << 50

const (
	// maxHistory and the number of campaigns bound what a snapshot remembers of those before it.
	maxHistory = 64
	leastKept  = 1024 // ids
)

// Next returns a copy of the snapshot with these campaigns replaced, or removed where they are nil. The cost to find them again (see
// Changed) does not grow with the catalog.
func (s *Snapshot) Next(changed map[string]*Campaign) *Snapshot {
	next := *s
	if len(changed) == 0 && s.serial > 0 {
		return &next
	}
	if next.Campaigns = maps.Clone(s.Campaigns); next.Campaigns == nil {
		next.Campaigns = make(map[string]*Campaign, len(changed))
	}
	for id, c := range changed {
		if c == nil {
			delete(next.Campaigns, id)
		} else {
			next.Campaigns[id] = c
		}
	}
	next.serial = max(1, s.serial) + 1
	next.changes = append(slices.Clone(s.changes), slices.Collect(maps.Keys(changed)))
	ids := 0
	for i, step := range slices.Backward(next.changes) {
		if ids += len(step); len(next.changes)-i > maxHistory || ids > max(leastKept, len(next.Campaigns)/4) {
			next.changes = slices.Clone(next.changes[i+1:])
			break
		}
	}
	return &next
}

// Changed yields the ids of all campaigns that differ from those of an earlier snapshot of the same catalog, and of those
// that are there no more; some of them may be the same.
func (s *Snapshot) Changed(since *Snapshot) iter.Seq[string] {
	if steps := s.serial - since.serial; since.serial > 0 && steps >= 0 && steps <= int64(len(s.changes)) {
		return func(yield func(string) bool) {
			for _, step := range s.changes[len(s.changes)-int(steps):] {
				for _, id := range step {
					if !yield(id) {
						return
					}
				}
			}
		}
	}
	return func(yield func(string) bool) {
		for id, c := range s.Campaigns {
			if since.Campaigns[id] != c && !yield(id) {
				return
			}
		}
		for id := range since.Campaigns {
			if s.Campaigns[id] == nil && !yield(id) {
				return
			}
		}
	}
}
