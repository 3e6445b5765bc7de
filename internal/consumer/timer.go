package consumer

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// newTimerReader reads one partition of a timer topic. Its delay is constant, so first in is first due: the reader
// sleeps until the head of what it has fetched is due, holding that one small batch.
func newTimerReader(d *shared, src *source, delay time.Duration, idle *idlePoll) *ingressReader {
	return &ingressReader{
		shared: d, src: src, maxBytes: timerFetchBytes, maxWait: shortPoll,
		hold: func(ctx context.Context, jobs []*delivery.Job) (int, error) { return holdUntilDue(ctx, jobs, delay) },
		idle: func(ctx context.Context, offset int64) error {
			wake, leave := idle.park(src.partition, offset)
			defer leave()
			select {
			case <-wake:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
}

// holdUntilDue sleeps until the first job is due and counts those that are due with it.
func holdUntilDue(ctx context.Context, jobs []*delivery.Job, delay time.Duration) (int, error) {
	now := time.Now()
	if wait := dueAt(jobs[0], delay, now).Sub(now); wait > 0 {
		if err := sleep(ctx, wait); err != nil {
			return 0, err
		}
		now = time.Now()
	}
	n := 1
	for n < len(jobs) && !dueAt(jobs[n], delay, now).After(now) {
		n++
	}
	return n, nil
}

// dueAt is when a job in a timer is to come back: when it has waited the timer's delay, or earlier, at its own time.
// The times are those of the daemon that wrote it. Where its clock is ahead of ours, nothing waits longer than the
// delay from now.
func dueAt(j *delivery.Job, delay time.Duration, now time.Time) time.Time {
	due := j.EnqueuedAt.Add(delay)
	if own := j.ReadyAt(); !own.IsZero() && own.Before(due) {
		due = own
	}
	if latest := now.Add(delay); due.After(latest) {
		due = latest
	}
	return due
}
