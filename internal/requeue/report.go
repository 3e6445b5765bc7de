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

// logTrouble logs after a turn that something begins to refuse, and that everything works again. It needs the relay's lock, and writes few
// lines.
func (r *Relay) logTrouble(ctx context.Context, t *turn, now time.Time) {
	if ctx.Err() != nil {
		return
	}
	s, waits := &r.trouble, r.box.stalled()
	count := waits.partitions
	at, err := t.failed()
	switch {
	case count == 0 && !s.since.IsZero() && (t.wrote || len(r.box.queues) == 0): // or nothing waits any more: its partitions have moved
		if s.warned && t.wrote {
			r.opts.Logger.Info("kafka accepts re-enqueued jobs again", "after", now.Sub(s.since).Round(time.Millisecond))
		}
		s.since, s.warned = time.Time{}, false
		return
	case count > 0 && s.since.IsZero():
		s.since = now
	}
	if err == nil || s.warned || broker.Busy(err) && now.Sub(s.since) < calm {
		return
	}
	s.warned = true
	r.opts.Logger.Warn("kafka refuses re-enqueued jobs; they stay open and are tried again",
		"at", at, "partitions", count, "jobs", waits.jobs, "error", err)
}

// logTooLarge logs, once in a while, a job or an event that does not fit into its topic.
func (r *Relay) logTooLarge(to broker.Partition, it *item, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.trouble.largeAt) {
		return
	}
	r.trouble.largeAt = now.Add(largeAgain)
	log := r.opts.Logger.With("topic", to.Topic, "campaign", it.job.Campaign, "job", it.job.ID, "source", it.job.Source.Name(),
		"offset", it.job.Offset, "payload_bytes", len(it.job.Payload), "jobs", r.box.stalled().large, "error", err)
	if it.result != nil {
		log.Error("the event of a job is larger than its topic takes; it is written without keys, headers and answer, and not at all if it is " +
			"too large even so: raise max.message.bytes")
		return
	}
	log.Error("a job is larger than its topic takes; it stays open and is tried again: raise max.message.bytes")
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

// stalled is what waits for partitions that refuse or do not answer.
type stalled struct {
	partitions, results int // that refuse, all of them and those of results
	jobs                int // that wait for these
	large               int // that are larger than their topics take
	requeued            int // of both, those that are no events
}

// stalled needs the relay's lock.
func (o *outbox) stalled() (s stalled) {
	for p, h := range o.held {
		if p.large {
			s.large += h.len()
		} else {
			s.partitions++
			s.jobs += h.len()
		}
		if h.events() {
			s.results++
		} else {
			s.requeued += h.len()
		}
	}
	return s
}
