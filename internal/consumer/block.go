package consumer

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// blockedProbe is how often refused jobs of ingress are offered without having been granted room: if a grant is
	// lost, or their campaign begins to use a lane, they wait at most this long.
	blockedProbe = 10 * time.Second
	// blockedPause is the least time between two offers of which the first was refused as a whole.
	blockedPause = 100 * time.Millisecond
	// keptFor is how long jobs that were fetched behind refused ones are kept. Then they are dropped, and read again later.
	keptFor = time.Second
	// blockedLook is how often is looked for jobs of other campaigns behind refused ones, until one is found.
	blockedLook = 2 * time.Second
	// maxBlockers bounds the campaigns that are remembered to have been warned about.
	maxBlockers = 1024
)

// unblock offers the refused jobs again, when room is granted and periodically, until all are accepted. Nothing
// is read meanwhile: they are registered, and charged to the budget. What was fetched behind them is kept for a moment.
func (r *ingressReader) unblock(ctx context.Context) error {
	if len(r.refused) == 0 {
		return nil
	}
	r.src.metrics.blocked.Inc()
	defer r.src.metrics.blocked.Dec()
	r.src.block(true)
	defer r.src.block(false)
	probe := time.NewTicker(blockedProbe)
	defer probe.Stop()
	look, ahead := time.NewTicker(blockedLook), r.src.next()
	defer look.Stop()
	kept := time.NewTimer(keptFor)
	defer kept.Stop()
	for {
		select {
		case <-r.room:
		case <-probe.C:
		case <-kept.C:
			r.drop()
			continue
		case <-look.C:
			ahead = r.lookBehind(ctx, ahead)
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		before := len(r.refused)
		if err := r.offerOnce(ctx, r.refused); err != nil {
			return err
		}
		switch len(r.refused) {
		case 0:
			return nil
		case before:
			if err := retry.Sleep(ctx, blockedPause); err != nil {
				return err
			}
		}
	}
}

// lookBehind looks for jobs of other campaigns that came after the partition was blocked, in one small fetch of which
// nothing is kept. It returns where to look on.
func (r *ingressReader) lookBehind(ctx context.Context, from int64) int64 {
	by := r.refused[0]
	if r.blockers.noted(by.Campaign) {
		return from
	}
	var behind []*delivery.Job
	now := time.Now()
	out, err := r.read(ctx, from, minFetchBytes, shortPoll, func(rec *broker.Raw) error {
		behind = append(behind, r.decode(rec, now))
		return nil
	})
	if err != nil {
		return from // the next fetch in earnest reports it
	}
	r.blockers.note(r.src.partition, by, behind)
	return out.Next
}

// offerOnce offers the jobs, and keeps those that are refused for unblock.
func (r *ingressReader) offerOnce(ctx context.Context, jobs []*delivery.Job) (err error) {
	r.room = r.src.listen()
	if r.refused, err = r.offer(ctx, jobs); err != nil {
		r.refused = jobs // they are registered; if the log is only verified, they are offered again
	}
	return err
}

// blockers warns of campaigns with overflow block that delay others on their partition, once for each; what others delay
// for a moment is nobody's concern. It is safe for concurrent use.
type blockers struct {
	log    *slog.Logger
	blocks func() iter.Seq[string] // the campaigns with that overflow

	mu   sync.Mutex
	said map[string]bool
}

func newBlockers(log *slog.Logger, blocks func() iter.Seq[string]) *blockers {
	return &blockers{log: log, blocks: blocks, said: map[string]bool{}}
}

// noted reports whether nothing more is said of the campaign.
func (b *blockers) noted(campaign string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said[campaign] || len(b.said) >= maxBlockers
}

// blocking reports whether the campaign keeps its jobs in ingress.
func (b *blockers) blocking(campaign string) bool {
	for id := range b.blocks() {
		if id == campaign {
			return true
		}
	}
	return false
}

// note warns when jobs of other campaigns wait behind a refused one.
func (b *blockers) note(at partition, refused *delivery.Job, behind ...[]*delivery.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said[refused.Campaign] || len(b.said) >= maxBlockers {
		return
	}
	for _, jobs := range behind {
		for _, j := range jobs {
			if j.Campaign == refused.Campaign {
				continue
			}
			if !b.blocking(refused.Campaign) {
				return
			}
			b.said[refused.Campaign] = true
			b.log.Warn("a campaign whose overflow is block holds up others on its partition",
				"campaign", refused.Campaign, "partition", at.String(), "other", j.Campaign,
				"remedy", "give it a topic of its own, or overflow lane")
			return
		}
	}
}
