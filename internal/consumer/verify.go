package consumer

import (
	"context"
	"maps"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// watchTopics looks, until ctx ends, for topics that were made anew: a reader need not notice, because the new log may contain its next offset.
// The leader of the group also looks for other numbers of partitions than it has dealt. Only when it joins again are partitions dealt anew.
func (t *assignment) watchTopics(ctx context.Context) {
	retry.Every(ctx, t.opt.topicsWatched, func(time.Time) {
		ids, counts, err := t.opt.Client.Identify(ctx, t.opt.topics()...)
		if err != nil {
			t.opt.Logger.Debug("the topics cannot be read; trying again", "error", err)
			return
		}
		for _, s := range t.sources() {
			if topic, ok := ids[s.Topic]; ok {
				s.compare(topic)
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.dealt != nil && !maps.Equal(counts, t.dealt) {
			t.dealt = nil
			t.opt.Logger.Info("topics have other partitions than before; the group is rebalanced")
			t.member.again.Send()
		}
	})
}

// another reports whether two ids are those of different topics with the same name. An unknown id proves nothing.
func another(a, b delivery.TopicID) bool { return a.Known() && b.Known() && a != b }

// verify finds out whether the log is still the one that the position is of, and contains it. It corrects a position before the
// log, and returns where to begin anew in another log, or in one that has lost its end. An error means that it is not known now.
func (r *reader) verify(ctx context.Context) (anew *start, err error) {
	first, end, err := r.opt.Client.Bounds(ctx, r.src.partition)
	if err != nil {
		return nil, err
	}
	topic, err := r.opt.Client.IdentityOf(ctx, r.src.partition) // after the bounds: what they are of may be deleted by now
	if err != nil {
		return nil, err
	}
	s := r.src
	s.heart.beat("the broker to say what the log is")
	s.mu.Lock()
	defer s.mu.Unlock()
	low, high := s.position.Span()
	log := r.opt.Logger.With("partition", s.String(), "offset", low, "earliest", first, "end", end)
	switch {
	case another(s.topic, topic):
		warnAnew(log)
		anew = &start{offset: first, topic: topic, proven: true}
	case low < first:
		log.Error("records to go on from have been deleted from the log; reading from the earliest record there is",
			"records", first-low)
		s.metrics.lost.WithLabelValues(placeNames[s.from], lostDeleted).Add(float64(first - low))
		s.position.Raise(first)
		if s.changes++; s.window != nil {
			s.tally.Recount(s.window.End())
		}
		signal(&s.onMove)
	case high > end && !s.proven.Load():
		log.Error("the offset to go on from is not in the log, and this daemon did not commit it; the partition is not read",
			"offset", high, "remedy", resetOffset)
		return &start{held: true}, nil
	case high > end:
		log.Error("the log has lost its last records, which were read before; going on at its end",
			"offset", high, "records", high-end)
		s.metrics.lost.WithLabelValues(placeNames[s.from], lostTruncated).Add(float64(high - end))
		s.mu.Unlock()
		r.settle(ctx)
		s.mu.Lock()
		p := s.now()
		anew = &start{offset: min(p.Offset, end), metadata: p.Metadata, topic: topic, proven: true, end: end}
		if p.Offset >= end {
			anew.metadata = ""
		}
	default: // the log has moved since
		return nil, nil
	}
	s.metrics.resets.Inc()
	return anew, nil
}
