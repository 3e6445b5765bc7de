package delivery

import (
	"cmp"
	"slices"
	"time"
)

// KeyMargin is what a window of a keyed quota is widened by. A job is sent at most so long after it was asked about, so no two are too close. The
// margin is a two-hundredth of the span, from LeastKeyMargin to a quarter of a second.
func KeyMargin(span time.Duration) time.Duration {
	return min(max(span/200, LeastKeyMargin), 250*time.Millisecond)
}

// LeastKeyMargin is the margin of a window of up to eight seconds.
const LeastKeyMargin = 40 * time.Millisecond

// KeyAsk asks the keys of a job that is in its campaign's queue.
type KeyAsk struct {
	Job      *Job
	Campaign *Campaign
	Sink     string
}

// KeyAnswer is what the keys of a job say: it is counted, and may be sent, or it waits.
type KeyAnswer struct {
	SendBy Stamp         // until when it may be sent; 0: it is not counted
	Late   bool          // it was counted, but too late to be sent: it was given back, and is asked about again
	Wait   time.Duration // until it is asked about again
	Reason Reason        // for which it waits
	Capped string        // the quota that lets it wait no longer, and would allow it after Wait; "": none
}

// KeyWaits is how a keyed quota lets jobs wait.
type KeyWaits struct {
	Quota   string    `json:"quota"`
	Waiting int64     `json:"waiting" doc:"jobs that wait for the turns of their keys"`
	Busiest []KeyJobs `json:"-"` // the keys of which most jobs had to wait lately, or were capped; they may name people
}

// KeyJobs is a number of jobs of one value of a key.
type KeyJobs struct {
	Key  string `json:"key"`
	Jobs int64  `json:"jobs" doc:"about, of the last minutes"`
}

const (
	maxKeyQuotas = 100
	maxBusiest   = 10
)

// SumKeyWaits adds up those of each quota, and leaves out all but the largest: the quotas with the most waiting jobs, and of each the
// busiest keys.
func SumKeyWaits(all []KeyWaits) (sums []KeyWaits) {
	slices.SortStableFunc(all, func(a, b KeyWaits) int { return cmp.Compare(a.Quota, b.Quota) })
	for _, one := range all {
		if last := len(sums) - 1; last >= 0 && sums[last].Quota == one.Quota {
			sums[last].Waiting += one.Waiting
			sums[last].Busiest = append(slices.Clip(sums[last].Busiest), one.Busiest...)
			continue
		}
		sums = append(sums, one)
	}
	for i := range sums {
		sums[i].Busiest = busiest(sums[i].Busiest)
	}
	slices.SortStableFunc(sums, func(a, b KeyWaits) int { return cmp.Compare(b.Waiting, a.Waiting) })
	return sums[:min(len(sums), maxKeyQuotas)]
}

func busiest(keys []KeyJobs) []KeyJobs {
	jobs := map[string]int64{}
	for _, k := range keys {
		jobs[k.Key] += k.Jobs
	}
	list := make([]KeyJobs, 0, len(jobs))
	for key, n := range jobs {
		list = append(list, KeyJobs{key, n})
	}
	slices.SortFunc(list, func(a, b KeyJobs) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Key, b.Key)) })
	return list[:min(len(list), maxBusiest)]
}
