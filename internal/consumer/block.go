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
	// blockedPause is the least time from an offer that was refused as a whole to the next.
	blockedPause = 100 * time.Millisecond
	// refusedFor is how long more than the bytes of a fetch are kept behind refused jobs if some are accepted now and then.
	refusedFor = time.Second
)

// unblock waits after jobs were refused, until room is granted, or it is time to try.
func (r *ingressReader) unblock(ctx context.Context) error {
	if !r.blocked {
		return nil
	}
	r.src.metrics.blocked.Inc()
	defer r.src.metrics.blocked.Dec()
	probe := blockedProbe
	if r.fetched.bytes > r.maxBytes() {
		probe = refusedFor
	}
	r.src.heart.rest()
	select {
	case <-r.src.wake:
	case <-time.After(probe):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.blocked = false
	return nil
}

// offerOnce offers the jobs, which are registered, and takes back those that are refused. Of these and of what was fetched behind them,
// no more than the bytes of a fetch are kept for long: they may wait for any time, and are read again.
func (r *ingressReader) offerOnce(ctx context.Context, jobs []*delivery.Job) error {
	select {
	case <-r.src.wake: // for an earlier refusal
	default:
	}
	refused, err := r.offer(ctx, jobs)
	if err != nil {
		refused = jobs
	}
	if len(refused) == 0 {
		return nil
	}
	r.blocked = true
	f := &r.fetched
	back := make([]*delivery.Job, 0, len(refused)+len(f.jobs))
	for _, j := range refused {
		if size := r.src.reopen(j.Offset); size > 0 {
			back = append(back, j)
			f.bytes += size
		}
	}
	f.jobs = append(back, f.jobs...)
	if all := len(refused) == len(jobs); all || time.Since(f.at) > refusedFor {
		for most := r.maxBytes(); f.bytes > most; f.next = 0 {
			last := len(f.jobs) - 1
			r.uncharge(f.jobs[last].Size)
			f.jobs[last], f.jobs = nil, f.jobs[:last]
		}
		if all && err == nil {
			err = retry.Sleep(ctx, blockedPause)
		}
	}
	return err
}
