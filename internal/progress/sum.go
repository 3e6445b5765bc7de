package progress

import (
	"cmp"
	"time"
)

const (
	// freshFor is how old a part may be for the contents of a daemon's memory to count.
	freshFor = 5 * time.Second
	// keepFor is how long a part is kept, which is long after other daemons have taken over the lanes of a dead one.
	keepFor = time.Minute
)

// reported is a part as read from the exchange.
type reported struct {
	*part
	daemon string
	age    time.Duration
}

func (r *reported) fresh() bool { return r.age < freshFor }

// total is the sum over all daemons for a campaign.
type total struct {
	waiting int64 // jobs
	jobs    int64 // of those, in memory
	units   int64 // weights of the jobs in memory
	inHand  int64 // jobs that its sink has been given and has not answered; those of lanes wait as well
}

// meanWeight returns the mean weight of the jobs in memory, 1 if there are none.
func (t total) meanWeight() float64 {
	if t.jobs <= 0 || t.units < t.jobs {
		return 1
	}
	return float64(t.units) / float64(t.jobs)
}

// sum adds up the parts by campaign.
func sum(parts []reported) map[uint64]total {
	totals := map[uint64]total{}
	readers := laneReaders(parts)
	for i := range parts {
		p := &parts[i]
		for _, l := range p.lanes.Lanes {
			if readers[l.Lane] != p {
				continue
			}
			for _, w := range l.Waiting {
				t := totals[w.Campaign]
				t.waiting += w.Jobs
				totals[w.Campaign] = t
			}
		}
		if !p.fresh() {
			continue
		}
		for _, h := range p.held {
			t := totals[h.campaign]
			t.waiting += h.direct
			t.jobs += h.jobs
			t.units += h.units
			totals[h.campaign] = t
		}
		for _, s := range p.inHand {
			t := totals[s.campaign]
			t.inHand += s.units
			totals[s.campaign] = t
		}
	}
	return totals
}

// laneReaders returns, for each lane, the part whose count is valid.
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

// supersedes reports whether r has newer knowledge of a lane than o: only r is alive, or r belongs to a later
// generation, or else r is newer.
func (r *reported) supersedes(o *reported) bool {
	switch {
	case r.fresh() != o.fresh():
		return r.fresh()
	case r.lanes.Generation != o.lanes.Generation:
		return r.lanes.Generation > o.lanes.Generation
	}
	return r.age < o.age
}

// leader returns the daemon that has run for the longest time, whose history is the longest; nil if there is none.
func leader(parts []reported) (first *reported) {
	for i := range parts {
		p := &parts[i]
		if p.fresh() && (first == nil || cmp.Or(cmp.Compare(p.started, first.started), cmp.Compare(p.daemon, first.daemon)) < 0) {
			first = p
		}
	}
	return first
}
