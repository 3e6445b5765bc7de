package requeue

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/broker"
)

const (
	// largeAgain is the shortest time between two lines about records that are too large.
	largeAgain = time.Minute
	// calm is how long a partition may be without a leader before that is logged: leaders move in normal operation.
	calm = time.Second
)

// trouble is what was logged about partitions that refuse. The relay's lock guards it.
type trouble struct {
	since   time.Time // of the first failure; zero while everything works
	warned  bool      // since then
	largeAt time.Time // when records that are too large may be logged again
}

// logTrouble updates the trouble after a turn and returns what logs it: a line when something begins to refuse, and one when
// everything works. It needs the relay's lock; the result has to be called without it.
func (r *Relay) logTrouble(ctx context.Context, t *turn, now time.Time) (tell func()) {
	if ctx.Err() != nil || t.box != r.box {
		return func() {}
	}
	large := r.logTooLarge(t, now)
	s, count := &r.trouble, t.box.refusing()
	at, err := t.failed()
	switch {
	case count == 0 && t.wrote && !s.since.IsZero():
		warned, after := s.warned, now.Sub(s.since)
		s.since, s.warned = time.Time{}, false
		return func() {
			large()
			if warned {
				r.opts.Logger.Info("kafka accepts re-enqueued jobs again", "after", after.Round(time.Millisecond))
			}
		}
	case count > 0 && s.since.IsZero():
		s.since = now
	}
	if err == nil || s.warned || broker.Busy(err) && now.Sub(s.since) < calm {
		return large
	}
	s.warned = true
	jobs := t.box.waiting()
	return func() {
		large()
		r.opts.Logger.Warn("kafka refuses re-enqueued jobs; they stay open and are tried again",
			"at", at, "partitions", count, "jobs", jobs, "error", err)
	}
}

// logTooLarge returns what logs that jobs do not fit into their topics.
func (r *Relay) logTooLarge(t *turn, now time.Time) func() {
	for _, f := range t.failures {
		if !f.large || f.err == nil || now.Before(r.trouble.largeAt) {
			continue
		}
		r.trouble.largeAt = now.Add(largeAgain)
		job, jobs := f.items[0].job, t.box.large()
		return func() {
			r.opts.Logger.Error("a job is larger than its topic takes; it stays open and is tried again: raise max.message.bytes",
				"topic", f.at.Topic, "campaign", job.Campaign, "job", job.ID, "source", job.Source.Name(), "offset", job.Offset,
				"payload_bytes", len(job.Payload), "jobs", jobs, "error", f.err)
		}
	}
	return func() {}
}

// failed returns the first failure of a turn that is not about the size of a record, and where it was.
func (t *turn) failed() (at string, err error) {
	for _, f := range t.failures {
		switch {
		case f.err == nil || f.large:
		case f.at.ID == anyPartition:
			return f.at.Topic, f.err
		default:
			return f.at.String(), f.err
		}
	}
	return "", nil
}

// refusing returns the number of partitions that refuse or do not answer. Like those below, it needs the relay's lock.
func (o *outbox) refusing() (n int) {
	for p := range o.held {
		if !p.large {
			n++
		}
	}
	return n
}

// waiting returns the number of jobs that wait for partitions which refuse.
func (o *outbox) waiting() int { return o.count(false) }

// large returns the number of jobs that are larger than their topics take.
func (o *outbox) large() int { return o.count(true) }

func (o *outbox) count(large bool) (jobs int) {
	for _, h := range o.held {
		if h.large == large {
			jobs += h.len()
		}
	}
	return jobs
}
