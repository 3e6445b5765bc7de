package dedupe

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// filterTimeout bounds a lookup whose result is optional.
const filterTimeout = 100 * time.Millisecond

// Filter looks up which of the jobs were delivered before or cancelled, and marks them: they need no slot to find it out
// in Deliver. Jobs that cannot be looked up, and those of unknown campaigns, are left unmarked.
func (l *Ledger) Filter(ctx context.Context, jobs []*delivery.Job) {
	parts := make([][]lookup, len(l.shards))
	for _, j := range jobs {
		if j.Duplicate || j.Cancelled || j.Flaw != nil || !l.options.Known(j.Campaign) {
			continue
		}
		i := idOf(j.Campaign, j.ID, j.Scope())
		k := i.shard(len(l.shards))
		parts[k] = append(parts[k], lookup{j, i.key(l.shards[k].tag)})
	}
	ctx, cancel := context.WithTimeout(ctx, filterTimeout)
	defer cancel()
	var all sync.WaitGroup
	for k, part := range parts {
		if len(part) > 0 && !l.shards[k].Failing() {
			all.Go(func() { l.shards[k].filter(ctx, part) })
		}
	}
	all.Wait()
}

// lookup is a job and its key.
type lookup struct {
	job *delivery.Job
	key string
}

// filter looks up jobs of this shard in one round trip.
func (s *shard) filter(ctx context.Context, part []lookup) {
	pipe := s.client.Pipeline()
	var replies []*redis.SliceCmd
	for chunk := range slices.Chunk(part, shards.MaxBatch) {
		keys := make([]string, len(chunk))
		for i, l := range chunk {
			keys[i] = l.key
		}
		replies = append(replies, pipe.MGet(ctx, keys...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return // Deliver asks again, and logs the error
	}
	for i, reply := range replies {
		for k, value := range reply.Val() {
			j := part[i*shards.MaxBatch+k].job
			j.Duplicate, j.Cancelled = value == markDelivered, value == markCancelled
		}
	}
}

// The values of delivered and of cancelled jobs.
const markDelivered, markCancelled = "1", "0"
