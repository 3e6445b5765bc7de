package dedupe

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
)

// siftTimeout bounds a look-up that nothing depends on.
const siftTimeout = 100 * time.Millisecond

// Sift looks up which of the jobs were delivered before, and says so in them: those need no slot to find it out in
// Deliver. What cannot be looked up now goes on as it is, and so do the jobs of unknown campaigns.
func (l *Ledger) Sift(ctx context.Context, jobs []*delivery.Job) {
	parts := make([][]lookup, len(l.shards))
	for _, j := range jobs {
		if j.Duplicate || j.Defect != "" || !l.known(j.Campaign) {
			continue
		}
		i := idOf(j.Campaign, j.ID)
		k := i.shard(len(l.shards))
		parts[k] = append(parts[k], lookup{j, i.key(l.shards[k].tag)})
	}
	ctx, cancel := context.WithTimeout(ctx, siftTimeout)
	defer cancel()
	var all sync.WaitGroup
	for k, part := range parts {
		if len(part) > 0 && !l.shards[k].failing.Load() {
			all.Go(func() { l.shards[k].sift(ctx, part) })
		}
	}
	all.Wait()
	for _, looked := range slices.Concat(parts...) {
		if looked.job.Duplicate {
			l.m.suppressed.WithLabelValues(looked.job.Campaign).Inc()
		}
	}
}

// lookup is a job and its key.
type lookup struct {
	job *delivery.Job
	key string
}

// sift looks jobs of this shard up in one round trip.
func (s *shard) sift(ctx context.Context, part []lookup) {
	pipe := s.client.Pipeline()
	var replies []*redis.SliceCmd
	for chunk := range slices.Chunk(part, maxBatch) {
		keys := make([]string, len(chunk))
		for i, l := range chunk {
			keys[i] = l.key
		}
		replies = append(replies, pipe.MGet(ctx, keys...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return // Deliver asks again, and says what is wrong
	}
	for i, reply := range replies {
		for k, value := range reply.Val() {
			part[i*maxBatch+k].job.Duplicate = value == marked
		}
	}
}

// marked is the value of a delivered job.
const marked = "1"
