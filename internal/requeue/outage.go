package requeue

import (
	"context"
	"math/rand/v2"
	"time"
)

// release ends a worker's turn. It keeps the account of outages: one line when the first queue fails, one when
// the last has recovered, so that a single bad partition does not make a line per attempt.
func (r *Relay) release(ctx context.Context, t *turn) {
	now, q := time.Now(), t.q
	r.mu.Lock()
	wasDown := r.down
	backoff := time.Duration(0)
	if t.err != nil {
		backoff = r.backoff(q.failures)
		q.failures++
		if r.down.IsZero() && ctx.Err() == nil {
			r.down = now
		}
	} else {
		q.failures = 0
	}
	t.box.failed(q, t.err != nil)
	if t.err == nil && t.wrote && t.box == r.box && r.box.failing == 0 {
		r.down = time.Time{}
	}
	isDown := r.down
	if isDown.IsZero() {
		r.metrics.outage.Set(0)
	} else {
		r.metrics.outage.Set(1)
	}
	t.box.giveBack(t, now, backoff)
	r.mu.Unlock()
	r.signal()

	switch {
	case wasDown.IsZero() && !isDown.IsZero():
		r.logger.Warn("kafka refuses re-enqueued jobs; they stay open and are tried again",
			"source", q.source.Name(), "error", t.err)
	case !wasDown.IsZero() && isDown.IsZero():
		r.logger.Info("kafka accepts re-enqueued jobs again", "after", now.Sub(wasDown).Round(time.Millisecond))
	}
}

// Outage tells whether the broker refuses what is re-enqueued at the moment, so that jobs stay open.
func (r *Relay) Outage() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.down.IsZero()
}

// backoff doubles from firstBackoff to the cap, less up to half of it at random, so that workers and daemons do
// not knock in step.
func (r *Relay) backoff(failures int) time.Duration {
	d := r.opts.MaxAttemptBackoff
	if failures < 16 {
		d = min(d, firstBackoff<<failures)
	}
	return d/2 + rand.N(d/2+1)
}
