package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// resetOffset is the remedy for an offset that cannot be used.
const resetOffset = "stop all daemons, choose an offset, and set it for this partition with kafka-consumer-groups.sh --reset-offsets: " +
	"all jobs after it are sent"

// startOffsets finds out where to begin in partitions: at the offset that the group has committed, unless that names another topic;
// elsewhere at the earliest record. Where the group's offset has expired, lanes and timers go on from the stored position if it is of
// this topic, because their jobs may have waited for longer than offsets are kept. A partition waits for what has to be asked for its
// own start, and at most for one attempt to load the stored positions that others need.
type startOffsets struct {
	*assignment
	loading retry.Outage
	left    []*holding // whose start is not found

	lanesRead func() <-chan struct{} // closed when the lanes are read, or that takes long
}

// run works until all starts are found or ctx ends.
func (l *startOffsets) run(ctx context.Context) {
	defer l.health.Forget("offsets")
	if slices.ContainsFunc(l.left, func(h *holding) bool { return h.from == delivery.FromIngress }) {
		l.recalls.Add(1)
		defer l.lanesRead() // also where none of it begins
	}
	var wait backoff
	for {
		err := l.find(ctx)
		if err == nil {
			l.health.OK("offsets")
		} else if ctx.Err() == nil {
			l.health.Fail("offsets", err)
		}
		l.left = slices.DeleteFunc(l.left, func(h *holding) bool { return h.found || h.reading.Err() != nil })
		if len(l.left) == 0 || wait.pause(ctx) != nil {
			return
		}
	}
}

// found has a partition be read from where it begins.
func (*startOffsets) found(h *holding, from start) {
	h.found = true
	h.begins <- from
}

// find finds the starts that can be found now. A partition whose commit is unknown waits alone.
func (l *startOffsets) find(ctx context.Context) error {
	topics, _, err := l.opt.Client.Identify(ctx, l.opt.topics()...)
	if err != nil {
		return err
	}
	commits, err := l.opt.Client.Committed(ctx, l.opt.Group, partitionsOf(l.left))
	if commits == nil {
		return err
	}
	l.reads()
	var others []*holding
	for _, h := range l.left {
		topic, there := topics[h.Topic]
		c, read := commits[h.partition]
		named, same := offset.Names(c.Metadata, topic)
		switch {
		case !there || !read:
		case c.None || named && !same && topic.Known():
			others = append(others, h)
		default:
			l.found(h, start{offset: c.Offset, metadata: c.Metadata, committed: true, topic: topic, proven: same})
		}
	}
	if len(others) == 0 {
		return err
	}
	begins, failure := l.opt.Client.Offsets(ctx, broker.Earliest, partitionsOf(others)...)
	ends, late := l.opt.Client.Offsets(ctx, broker.Latest, partitionsOf(others)...)
	stored, waiting := sync.OnceValues(func() (map[partition]delivery.Position, error) { return l.stored(ctx) }), 0
	for _, h := range others {
		begin, ok := begins[h.partition]
		end, answered := ends[h.partition]
		from, ingress := start{offset: begin, topic: topics[h.Topic], proven: true}, h.from == delivery.FromIngress
		switch c := commits[h.partition]; {
		case !ok || !answered:
			continue
		case !c.None:
			warnAnew(l.opt.Logger.With("partition", h.String(), "committed", c.Offset))
			l.metrics.resets.Inc()
		case begin != end || ingress && begin > 0:
			positions, unknown := stored()
			if unknown != nil && !ingress {
				waiting++
				continue
			}
			if p, is := positions[h.partition]; is {
				l.resume(h, &from, p)
			}
		}
		l.found(h, from)
	}
	if waiting > 0 && ctx.Err() == nil && l.loading.Failed() {
		_, unknown := stored()
		l.opt.Logger.Warn("stored positions cannot be read; partitions without a committed offset wait for theirs",
			"partitions", waiting, "error", unknown)
	}
	return cmp.Or(err, failure, late)
}

// stored loads the stored positions.
func (l *startOffsets) stored(ctx context.Context) (map[partition]delivery.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	list, err := l.opt.Positions.LoadPositions(ctx, l.opt.Group)
	if err != nil {
		return nil, err
	}
	if lasted, over := l.loading.Worked(); over {
		l.opt.Logger.Info("stored positions can be read again", "outage", lasted)
	}
	positions := make(map[partition]delivery.Position, len(list))
	for _, p := range list {
		positions[partition{Topic: p.Topic, ID: p.Partition}] = p
	}
	return positions, nil
}

// resume has a lane or a timer without an offset of the group go on from its stored position. A partition of ingress begins at the earliest
// record although the group had committed an offset: resume logs and counts what that costs.
func (l *startOffsets) resume(h *holding, from *start, p delivery.Position) {
	log := l.opt.Logger.With("partition", h.String(), "committed", p.Committed, "earliest", from.offset)
	switch ingress := h.from == delivery.FromIngress; {
	case p.TopicID != from.topic:
		log.Warn("the position kept in the catalog for a partition is of another topic with its name; reading from the earliest record")
	case !ingress && p.Committed > 0: // at 0 nothing was lost: nothing was ever committed there
		log.Warn("the group has no offset for a partition; going on from the position kept in the catalog")
		from.offset, from.metadata = p.Committed, p.Metadata
	case ingress && p.Committed > from.offset:
		l.metrics.resets.Inc()
		l.metrics.reread.Add(float64(p.Committed - from.offset))
		log.Warn("the group's offset of a partition is gone; reading from the earliest record, though later ones were read before",
			"records", p.Committed-from.offset, "remedy", "raise offsets.retention.minutes of the brokers above the longest stop")
	case ingress && p.Committed < from.offset:
		l.metrics.resets.Inc()
		l.metrics.lost.WithLabelValues(placeNames[h.from], lostDeleted).Add(float64(from.offset - p.Committed))
		log.Warn("the group's offset of a partition is gone, and records after it have been deleted from the log; reading from the "+
			"earliest record", "records", from.offset-p.Committed, "remedy", "raise the retention of the topic above the longest stop")
	}
}

func warnAnew(log *slog.Logger) {
	log.Warn("the topic was made anew; reading it from the earliest record")
}
