package consumer

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// blockedProbe is how often refused jobs of ingress are offered without having been granted room: if a grant is
	// lost, or their campaign begins to use a lane, they wait at most this long.
	blockedProbe = 10 * time.Second
	// blockedPause is the least time between two offers of which the first was refused as a whole.
	blockedPause = 100 * time.Millisecond
	// refusedFor is how long jobs that were fetched behind refused ones are kept. Then they are dropped, and read again later.
	refusedFor = time.Second
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
	kept := time.NewTimer(refusedFor)
	defer kept.Stop()
	for {
		r.src.heart.rest()
		select {
		case <-r.room:
		case <-probe.C:
		case <-kept.C:
			r.drop()
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

// offerOnce offers the jobs, and keeps those that are refused for unblock.
func (r *ingressReader) offerOnce(ctx context.Context, jobs []*delivery.Job) (err error) {
	r.room = r.src.listen()
	if r.refused, err = r.offer(ctx, jobs); err != nil {
		r.refused = jobs // they are registered; if the log is only verified, they are offered again
	}
	return err
}
