package dedupe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/shards"
)

// Desk reads the ledger for people, and cancels jobs in it.
type Desk struct {
	Shards    *shards.Set
	KeyPrefix string
	Keep      time.Duration // how long a job stays cancelled, at least 1 ms
}

// Job names a job. Its Scope is that of delivery.Job.
type Job struct{ Campaign, ID, Scope string }

// Mark is what the ledger says of a job.
type Mark string

// The marks.
const (
	Free      Mark = ""          // nothing
	InFlight  Mark = "in_flight" // a daemon may be sending it
	Delivered Mark = "delivered"
	Cancelled Mark = "cancelled"
)

// Look returns the mark of each job.
func (d Desk) Look(ctx context.Context, jobs []Job) ([]Mark, error) {
	return d.run(ctx, lookEntry, jobs)
}

// Cancel marks the jobs as cancelled that are neither in flight nor delivered, and returns the mark that each has then.
func (d Desk) Cancel(ctx context.Context, jobs []Job) ([]Mark, error) {
	return d.run(ctx, cancelEntry, jobs)
}

func (d Desk) run(ctx context.Context, what string, jobs []Job) ([]Mark, error) {
	marks, parts := make([]Mark, len(jobs)), make([][]int, d.Shards.Count())
	for at, j := range jobs {
		k := idOf(j.Campaign, j.ID, j.Scope).shard(len(parts))
		parts[k] = append(parts[k], at)
	}
	for k, part := range parts {
		for chunk := range slices.Chunk(part, shards.MaxBatch) {
			batch := make([]*entry, len(chunk))
			for i, at := range chunk {
				j := &jobs[at]
				batch[i] = newEntry(what, idOf(j.Campaign, j.ID, j.Scope), "", d.Keep)
			}
			answers, err := execute(ctx, d.Shards.Master(k), tag(d.KeyPrefix, k), "", batch)
			if err != nil {
				return nil, fmt.Errorf("redis.addrs: the dedupe ledger does not answer: %w", err)
			}
			for i, at := range chunk {
				marks[at] = markOf(answers[i])
			}
		}
	}
	return marks, nil
}

func markOf(answer int64) Mark {
	switch answer {
	case leased:
		return Free
	case delivered:
		return Delivered
	case cancelled:
		return Cancelled
	}
	return InFlight
}
