package simulate

import (
	"context"
	"fmt"
	"sort"
)

// Result is what one algorithm made of a load.
type Result struct {
	Algorithm
	// Sent is when each job went, in order; microseconds since the start.
	Sent []int64
}

// Run gives the load to each algorithm. It fails only if the load is not valid or ctx ends.
func Run(ctx context.Context, load *Load, algorithms []Algorithm) ([]Result, error) {
	if err := load.Validate(); err != nil {
		return nil, err
	}
	results := make([]Result, 0, len(algorithms))
	for _, a := range algorithms {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("simulate %s: %w", a.Name, err)
		}
		results = append(results, Result{Algorithm: a, Sent: drive(a.start(load.Rate), load)})
	}
	return results, nil
}

// drive sends the jobs as the limiter lets it and returns when each went.
func drive(l limiter, load *Load) []int64 {
	sent := make([]int64, 0, load.Jobs)
	idle, now := load.Idle, int64(0)
	for int64(len(sent)) < load.Jobs {
		for len(idle) > 0 && now >= idle[0].At.Microseconds() {
			l.take(idle[0].At.Microseconds(), 0)
			now = max(now, (idle[0].At + idle[0].For).Microseconds())
			idle = idle[1:]
		}
		units, next := l.take(now, load.Jobs-int64(len(sent)))
		for range units {
			sent = append(sent, now)
		}
		if units == 0 {
			next = max(next, now+1)
		}
		now = max(now, next)
	}
	return sent
}

// Finished is when the last job went, microseconds since the start.
func (r *Result) Finished() int64 { return r.Sent[len(r.Sent)-1] }

// MaxRolling is the largest number of jobs in any stretch of length microseconds; exact. A stretch holds its beginning
// and not its end: jobs a whole length apart are never in one.
func (r *Result) MaxRolling(length int64) int64 {
	most, from := 0, 0
	for i, at := range r.Sent {
		for r.Sent[from] <= at-length {
			from++
		}
		most = max(most, i-from+1)
	}
	return int64(most)
}

// Bins is how many jobs went in each stretch of length microseconds, from the start to the last job.
func (r *Result) Bins(length int64) []int64 {
	bins := make([]int64, r.Finished()/length+1)
	for _, at := range r.Sent {
		bins[at/length]++
	}
	return bins
}

// within is how many jobs went from one instant until another, which is not included.
func (r *Result) within(from, until int64) int64 {
	index := func(t int64) int { return sort.Search(len(r.Sent), func(i int) bool { return r.Sent[i] >= t }) }
	return int64(index(until) - index(from))
}
