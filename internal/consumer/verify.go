package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// topicsWatched is how often the ids of topics are compared with those of the logs that are read.
const topicsWatched = 5 * time.Second

// watchTopics looks for topics that were made anew, until ctx ends. A reader need not notice, because the new log may
// contain the offset at which it goes on.
func (t *assignment) watchTopics(ctx context.Context) {
	retry.Every(ctx, topicsWatched, func(time.Time) {
		found, err := t.opt.Client.Identify(ctx, t.opt.topics()...)
		if err != nil {
			t.opt.Logger.Debug("the ids of topics cannot be read; trying again", "error", err)
			return
		}
		for _, s := range t.sources() {
			if topic, ok := found[s.Topic]; ok {
				s.compare(topic)
			}
		}
	})
}

// confirm asks, before the last commit, whether the topics are those that were read. One that was made anew a moment ago was
// not noticed yet, and may have been committed in: the next owner would go on in it from a position in the topic before it.
// A topic that is not there may be unknown to a broker that was just started.
func (t *assignment) confirm(ctx context.Context, within time.Duration, partitions []*holding) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	left := map[string][]*holding{} // by topic
	for _, p := range partitions {
		left[p.base().Topic] = append(left[p.base().Topic], p)
	}
	var wait backoff
	for len(left) > 0 {
		found, err := t.opt.Client.Identify(ctx, slices.Collect(maps.Keys(left))...)
		if err != nil {
			t.opt.Logger.Debug("the ids of topics cannot be read before the last commit", "error", err)
		}
		for name, topic := range found {
			anew := false
			for _, p := range left[name] {
				if p.base().confirm(topic) {
					anew = true
					t.place(p.placed, start{topic: topic, proven: true})
				}
			}
			if anew {
				t.opt.Logger.Warn("the topic was made anew; reading it from the earliest record", "topic", name)
				t.metrics.resets.Inc()
			}
			delete(left, name)
		}
		if len(left) > 0 && wait.pause(ctx) != nil {
			return
		}
	}
}

// another reports whether two ids are those of different topics with the same name. What is not known proves nothing.
func another(a, b delivery.TopicID) bool { return a.Known() && b.Known() && a != b }

// verify finds out whether the log is still the one that the position is of, and contains it, and corrects the position
// if not. An error means that this cannot be found out now.
func (r *reader) verify(ctx context.Context) error {
	first, end, err := r.opt.Client.Bounds(ctx, r.base.partition)
	if err != nil {
		return err
	}
	topic, err := r.opt.Client.IdentityOf(ctx, r.base.partition) // after the bounds: what they are of may be deleted by now
	if err != nil {
		return err
	}
	r.base.heart.beat("the broker to say what the log is")
	w := r.base.logPosition()
	was, low, high := w.topic, w.low, w.high
	log := r.opt.Logger.With("partition", r.base.String(), "offset", low, "earliest", first, "end", end)
	switch {
	case another(was, topic):
		log.Warn("the topic was made anew; reading it from the earliest record")
		return r.restart(first, topic)
	case low < first:
		log.Error("records to go on from have been deleted from the log; reading from the earliest record there is",
			"records", first-low)
		r.lost(lostDeleted, first-low)
		r.base.correct(topic, func(p position) { p.Raise(first) })
	case high > end:
		same, err := w.proven && was.Known() && topic.Known(), error(nil)
		if !same {
			same, err = r.storedOf(ctx, topic)
		}
		if err != nil {
			return err
		}
		if !same {
			log.Error("the offset to go on from is not in the log; reading from the earliest record there is", "offset", high)
			return r.restart(first, topic)
		}
		log.Error("the log has lost its last records, which were read before; going on at its end",
			"offset", high, "records", high-end)
		r.lost(lostTruncated, high-end)
		r.base.cut(end, topic)
	default: // the log has moved since
		r.base.correct(topic, func(position) {})
		return nil
	}
	r.base.metrics.resets.Inc()
	r.entered()
	r.untrim()
	return nil
}

// restart begins with another log.
func (r *reader) restart(first int64, topic delivery.TopicID) error {
	r.base.metrics.resets.Inc()
	err := r.partition.place(start{offset: first, topic: topic, proven: true})
	r.entered()
	r.untrim()
	return err
}

// untrim takes back what was reported to be settled, which the log gives to other records now.
func (r *reader) untrim() {
	if r.opt.Trim != nil && r.base.from != delivery.FromIngress {
		r.opt.Trim(r.base.partition, delivery.TopicID{}, 0)
	}
}

// The causes of lost records in labels.
const (
	lostDeleted   = "deleted"   // before they were read, by retention for example
	lostTruncated = "truncated" // after they were read, by the election of a leader that did not have them
)

func (r *reader) lost(cause string, records int64) {
	r.base.metrics.lost.WithLabelValues(placeNames[r.base.from], cause).Add(float64(records))
}

// errWaits means that a partition waits for its stored position.
var errWaits = errors.New("the stored position cannot be read")

// storedOf reports whether the stored position of the partition is one of this topic. It decides about a position
// beyond the end of the log at which nothing has been read yet.
func (r *reader) storedOf(ctx context.Context, topic delivery.TopicID) (bool, error) {
	call, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	stored, err := r.opt.Positions.LoadPositions(call, r.opt.Group)
	if err != nil {
		if ctx.Err() == nil && r.waits.Failed() {
			r.opt.Logger.Warn("the log ends before the offset to go on from; waiting for the stored position, which says whether "+
				"it is the same log", "partition", r.base.String(), "error", err)
		}
		return false, fmt.Errorf("%w: %w", errWaits, err)
	}
	r.waits.Worked()
	for _, p := range stored {
		if p.Topic == r.base.Topic && p.Partition == r.base.ID {
			return topic.Known() && p.TopicID == topic, nil
		}
	}
	return false, nil
}
