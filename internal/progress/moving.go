package progress

import (
	"slices"
	"time"
)

// movesFor is for how long a job counts that is in no partition: until its new one is woken and counted, that is reported, and the reports of
// all daemons are summed up.
const movesFor = 4 * time.Second

// past is what the last sums were. A job that moves to a lane or a timer leaves the count of its partition at once, and is in that of the other
// a moment later, on another daemon perhaps. The zero value knows nothing.
type past []sums

type sums struct {
	at time.Time
	of map[uint64]summedUp // by campaign
}

// summedUp is how many jobs of a campaign waited, and how many had been settled by then.
type summedUp struct{ jobs, settled int64 }

// moving returns how many jobs of each campaign are missing at now: they waited in one of the last sums, and were not settled since.
func (p *past) moving(at time.Time, totals map[uint64]total, settled map[uint64]tally) map[uint64]int64 {
	*p = slices.DeleteFunc(*p, func(s sums) bool { return at.Sub(s.at) > movesFor })
	now := make(map[uint64]summedUp, len(totals))
	for hash, t := range totals {
		now[hash] = summedUp{t.waiting, settled[hash].Settled}
	}
	missing := map[uint64]int64{}
	for _, before := range *p {
		for hash, was := range before.of {
			if n := was.jobs - (settled[hash].Settled - was.settled) - now[hash].jobs; n > missing[hash] {
				missing[hash] = n
			}
		}
	}
	*p = append(*p, sums{at, now})
	return missing
}
