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
	// refusedFor is how long all jobs of a fetch are kept after some were refused. From then on, at most expansion times the bytes of a
	// fetch are kept; if no room is granted for refusedFor, at most the bytes of a fetch.
	refusedFor = time.Second
)

// blockedPause is how long a reader pauses when all jobs of an offer were refused. It grows with each such offer in a row.
var blockedPause = retry.Backoff{Initial: time.Millisecond, Max: 100 * time.Millisecond}

// unblock waits after jobs were refused, until room is granted, or it is time to try.
func (r *ingressReader) unblock(ctx context.Context) error {
	if !r.blocked {
		return nil
	}
	r.src.metrics.blocked.Inc()
	defer r.src.metrics.blocked.Dec()
	r.src.heart.rest()
	for _, wait := range []time.Duration{refusedFor, blockedProbe} {
		select {
		case <-r.src.wake:
			r.blocked = false
			return nil
		case <-time.After(wait):
			r.shed(r.maxBytes())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.blocked = false
	return nil
}

// offerOnce offers the jobs, which are registered, and takes back those that are refused.
func (r *ingressReader) offerOnce(ctx context.Context, jobs []*delivery.Job) error {
	select {
	case <-r.src.wake: // for an earlier refusal
	default:
	}
	refused, err := r.offer(ctx, jobs)
	if err != nil {
		refused = jobs
	}
	if len(refused) < len(jobs) {
		r.refusals = 0
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
	if time.Since(f.at) > refusedFor {
		r.shed(expansion * r.maxBytes())
	}
	if len(refused) == len(jobs) && err == nil {
		r.refusals++
		err = retry.Sleep(ctx, blockedPause.Delay(r.refusals))
	}
	return err
}

// shed keeps the first of the refused jobs, up to most bytes. The others, and what was fetched behind them, are read again.
func (r *ingressReader) shed(most int64) {
	for f := &r.fetched; f.bytes > most; f.next = 0 {
		last := len(f.jobs) - 1
		r.uncharge(f.jobs[last].Size)
		f.jobs[last], f.jobs = nil, f.jobs[:last]
	}
}
