package progress

import "time"

const (
	// freshFor is how old a part may be for what a daemon held in memory to count.
	freshFor = 5 * time.Second
	// keepFor is how long a part stays on the board: until long after others have taken over the lanes of a daemon that
	// is gone.
	keepFor = time.Minute
)

// reported is a part as it was read from the board.
type reported struct {
	*part
	daemon string
	age    time.Duration
}

func (r *reported) fresh() bool { return r.age < freshFor }

// total is what all daemons together know of a campaign.
type total struct {
	waiting int64 // jobs
	jobs    int64 // of those in memory, and
	units   int64 // their weights
}

// meanWeight is that of the jobs in memory, 1 when there are none.
func (t *total) meanWeight() float64 {
	if t.jobs <= 0 || t.units < t.jobs {
		return 1
	}
	return float64(t.units) / float64(t.jobs)
}

// sum adds the parts up by campaign.
func sum(parts []reported) map[uint64]*total {
	totals := map[uint64]*total{}
	of := func(campaign uint64) *total {
		t := totals[campaign]
		if t == nil {
			t = &total{}
			totals[campaign] = t
		}
		return t
	}
	readers := laneReaders(parts)
	for i := range parts {
		p := &parts[i]
		for _, l := range p.lanes.Lanes {
			if readers[l.Lane] != p {
				continue
			}
			for _, w := range l.Waiting {
				of(w.Campaign).waiting += w.Jobs
			}
		}
		if !p.fresh() {
			continue
		}
		for _, h := range p.held {
			t := of(h.campaign)
			t.waiting += h.direct
			t.jobs += h.jobs
			t.units += h.units
		}
	}
	return totals
}

// laneReaders finds whose count of each lane holds.
func laneReaders(parts []reported) map[int]*reported {
	readers := map[int]*reported{}
	for i := range parts {
		p := &parts[i]
		for _, l := range p.lanes.Lanes {
			if before := readers[l.Lane]; before == nil || p.supersedes(before) {
				readers[l.Lane] = p
			}
		}
	}
	return readers
}

// supersedes tells whether r knows more of a lane than o: it is alive and o is not, it belongs to a later generation, or
// else it is newer.
func (r *reported) supersedes(o *reported) bool {
	switch {
	case r.fresh() != o.fresh():
		return r.fresh()
	case r.lanes.Generation != o.lanes.Generation:
		return r.lanes.Generation > o.lanes.Generation
	}
	return r.age < o.age
}

// eldest is the daemon that has been at work for the longest time, whose memory of the past is the best; nil when there
// is none.
func eldest(parts []reported) (first *reported) {
	for i := range parts {
		p := &parts[i]
		if !p.fresh() {
			continue
		}
		if first == nil || p.started < first.started || p.started == first.started && p.daemon < first.daemon {
			first = p
		}
	}
	return first
}
