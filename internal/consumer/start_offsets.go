package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

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
// own start only, and ingress at most for one attempt to load stored positions.
type startOffsets struct {
	*assignment
	loading retry.Outage
	topics  map[string]delivery.TopicID
	commits map[partition]broker.Commit
	left    []partition // whose start is not found

	lanesRead func() // returns when the lanes are read, or it takes long
}

// run works until all starts are found or ctx ends.
func (l *startOffsets) run(ctx context.Context) {
	defer l.health.Forget("offsets")
	var wait backoff
	for {
		err := l.find(ctx)
		if err == nil {
			l.health.OK("offsets")
		} else if ctx.Err() == nil {
			l.health.Fail("offsets", err)
		}
		if l.left = slices.DeleteFunc(l.left, func(at partition) bool { return !l.awaits(at) }); len(l.left) == 0 || wait.pause(ctx) != nil {
			return
		}
	}
}

// find finds the starts that can be found now. A partition whose commit is unknown waits alone.
func (l *startOffsets) find(ctx context.Context) (err error) {
	if l.topics, err = l.opt.Client.Identify(ctx, l.opt.topics()...); err != nil {
		return err
	}
	if l.commits, err = l.opt.Client.Committed(ctx, l.opt.Group, l.left); l.commits == nil {
		return err
	}
	l.reads()
	var others []partition
	for _, at := range l.left {
		topic, there := l.topics[at.Topic]
		c, read := l.commits[at]
		named, same := offset.Names(c.Metadata, topic)
		switch {
		case !there || !read:
		case c.None || named && !same && topic.Known():
			others = append(others, at)
		default:
			l.begin(at, start{offset: c.Offset, metadata: c.Metadata, committed: true, topic: topic, proven: same})
		}
	}
	if len(others) == 0 {
		return err
	}
	return cmp.Or(err, l.findOthers(ctx, others))
}

func warnAnew(log *slog.Logger) {
	log.Warn("the topic was made anew; reading it from the earliest record")
}

// findOthers finds the starts of partitions that do not go on from an offset of the group.
func (l *startOffsets) findOthers(ctx context.Context, others []partition) error {
	begins, err := l.opt.Client.Offsets(ctx, broker.Earliest, others...)
	ends, failure := l.opt.Client.Offsets(ctx, broker.Latest, others...)
	waiting, needing := map[partition]start{}, 0 // for stored positions
	for _, at := range others {
		begin, ok := begins[at]
		end, answered := ends[at]
		from, ingress := start{offset: begin, topic: l.topics[at.Topic], proven: true}, l.ingress(at)
		switch {
		case !ok || !answered:
		case !l.commits[at].None:
			warnAnew(l.opt.Logger.With("partition", at.String(), "committed", l.commits[at].Offset))
			l.metrics.resets.Inc()
			l.begin(at, from)
		case begin == end && (!ingress || begin == 0):
			l.begin(at, from)
		default:
			if waiting[at] = from; !ingress {
				needing++
			}
		}
	}
	if len(waiting) == 0 {
		return cmp.Or(err, failure)
	}
	stored, ok := l.stored(ctx, needing)
	for at, from := range waiting {
		p, is := stored[at]
		log := l.opt.Logger.With("partition", at.String(), "committed", p.Committed, "earliest", from.offset)
		switch {
		case !ok && !l.ingress(at):
			continue
		case !is:
		case p.TopicID != from.topic:
			log.Warn("the position kept in the catalog for a partition is of another topic with its name; reading from the earliest record")
		case l.ingress(at):
			l.expired(log, p.Committed, from.offset)
		case p.Committed > 0: // at 0 nothing was lost: nothing was ever committed there
			log.Warn("the group has no offset for a partition; going on from the position kept in the catalog")
			from.offset, from.metadata = p.Committed, p.Metadata
		}
		l.begin(at, from)
	}
	return cmp.Or(err, failure)
}

func (l *startOffsets) ingress(at partition) bool {
	place, _ := l.opt.place(at.Topic)
	return place == delivery.FromIngress
}

// expired logs and counts the effect of reading a partition of ingress from the earliest record, although the group had committed an
// offset.
func (l *startOffsets) expired(log *slog.Logger, committed, begin int64) {
	if committed == begin {
		return
	}
	l.metrics.resets.Inc()
	if committed > begin {
		l.metrics.reread.Add(float64(committed - begin))
		log.Warn("the group's offset of a partition is gone; reading from the earliest record, though later ones were read before",
			"records", committed-begin, "remedy", "raise offsets.retention.minutes of the brokers above the longest stop")
		return
	}
	l.metrics.lost.WithLabelValues(placeNames[delivery.FromIngress], lostDeleted).Add(float64(begin - committed))
	log.Warn("the group's offset of a partition is gone, and records after it have been deleted from the log; reading from the "+
		"earliest record", "records", begin-committed, "remedy", "raise the retention of the topic above the longest stop")
}

// stored loads the stored positions, without which that many partitions cannot begin.
func (l *startOffsets) stored(ctx context.Context, needing int) (positions map[partition]delivery.Position, ok bool) {
	call, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	list, err := l.opt.Positions.LoadPositions(call, l.opt.Group)
	if err != nil {
		if ctx.Err() == nil && needing > 0 && l.loading.Failed() {
			l.opt.Logger.Warn("stored positions cannot be read; partitions without a committed offset wait for theirs",
				"partitions", needing, "error", err)
		}
		return nil, false
	}
	if lasted, over := l.loading.Worked(); over {
		l.opt.Logger.Info("stored positions can be read again", "outage", lasted)
	}
	positions = make(map[partition]delivery.Position, len(list))
	for _, p := range list {
		positions[partition{Topic: p.Topic, ID: p.Partition}] = p
	}
	return positions, true
}
