package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// start is where reading a partition begins.
type start struct {
	offset    int64
	metadata  string
	committed bool             // by the group
	topic     delivery.TopicID // of the log
	proven    bool             // the offset is known to be one in this log
}

// startOffsets finds out where to begin in partitions: at the offset that the group has committed, or, in new ones and those whose
// offset has expired with the group, elsewhere. An empty partition is begun at its end, and one of ingress at its earliest record; that its
// offset has expired is seen by its stored position, and logged. Lanes and timers go on from the stored position, because
// their jobs may have waited for longer than offsets are kept, or else begin at the earliest record too. A partition
// waits for what has to be asked for its own start only, and ingress at most for one attempt to load stored positions. A
// stored position is used only if it is of this topic, not of another one with its name.
type startOffsets struct {
	opt     *Options
	metrics *metrics
	health  *broker.Health
	loading retry.Outage
	topics  map[string]delivery.TopicID // as they were when the partitions were assigned

	mu      sync.Mutex
	missing map[partition]chan start // of capacity 1; of those who still wait
}

func newStartOffsets(opt *Options, m *metrics, health *broker.Health) *startOffsets {
	return &startOffsets{opt: opt, metrics: m, health: health, missing: map[partition]chan start{}}
}

// await returns a function that waits until the start of the partition is known; its error is that of the context.
func (l *startOffsets) await(at partition) func(context.Context) (start, error) {
	found := make(chan start, 1)
	l.mu.Lock()
	l.missing[at] = found
	l.mu.Unlock()
	return func(ctx context.Context) (start, error) {
		select {
		case s := <-found:
			return s, nil
		case <-ctx.Done():
			l.mu.Lock()
			delete(l.missing, at)
			l.mu.Unlock()
			return start{}, ctx.Err()
		}
	}
}

// run works until all starts of the partitions are found or ctx ends. It calls known when it is known which of them the group has
// committed. A partition whose offset cannot be read waits alone.
func (l *startOffsets) run(ctx context.Context, partitions []partition, known func()) {
	defer l.health.Forget("offsets")
	var wait backoff
	for unread := partitions; ; {
		commits, err := l.opt.Client.Committed(ctx, l.opt.Group, unread)
		for at, c := range commits {
			if !c.None {
				l.found(at, start{offset: c.Offset, metadata: c.Metadata, committed: true})
			}
		}
		unread = slices.DeleteFunc(slices.Clone(unread), func(at partition) bool { _, read := commits[at]; return read })
		if commits != nil {
			known()
			err = cmp.Or(err, l.resolve(ctx, unread))
		}
		if err == nil {
			l.health.OK("offsets")
		} else if ctx.Err() == nil {
			l.health.Fail("offsets", err)
		}
		if len(l.left(nil)) == 0 || wait.pause(ctx) != nil {
			return
		}
	}
}

// left lists the partitions whose start is not found, without some.
func (l *startOffsets) left(without []partition) (list []partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.missing {
		if !slices.Contains(without, at) {
			list = append(list, at)
		}
	}
	return list
}

// resolve finds the starts that can be found now, where the group has committed nothing: not in those of which that is not known.
func (l *startOffsets) resolve(ctx context.Context, unread []partition) error {
	left := l.left(unread)
	if len(left) == 0 {
		return nil
	}
	begins, err := l.opt.Client.Offsets(ctx, broker.Earliest, left...)
	ends, failure := l.opt.Client.Offsets(ctx, broker.Latest, left...)
	err = cmp.Or(err, failure)
	waiting, needing := map[partition]int64{}, 0 // for stored positions, by the earliest record
	for _, at := range left {
		begin, ok := begins[at]
		end, answered := ends[at]
		ingress := l.ingress(at)
		switch {
		case !ok || !answered:
		case begin == end && (!ingress || begin == 0):
			l.found(at, start{offset: begin, proven: true})
		default:
			waiting[at] = begin
			if !ingress {
				needing++
			}
		}
	}
	if len(waiting) == 0 {
		return err
	}
	stored, ok := l.stored(ctx, needing)
	topics := map[string]delivery.TopicID{}
	for at, begin := range waiting {
		if !ok {
			if l.ingress(at) {
				l.found(at, start{offset: begin, proven: true})
			}
			continue
		}
		topic, known := topics[at.Topic]
		if !known {
			if topic, failure = l.opt.Client.IdentityOf(ctx, at); failure != nil {
				err = cmp.Or(err, failure)
				continue
			}
			topics[at.Topic] = topic
		}
		from := start{offset: begin, topic: topic, proven: true}
		p, ok := stored[at]
		log := l.opt.Logger.With("partition", at.String(), "committed", p.Committed, "earliest", begin)
		switch {
		case !ok:
		case p.TopicID != topic:
			log.Warn("the position kept in the catalog for a partition is of another topic with its name; reading from the earliest record")
		case l.ingress(at):
			l.expired(log, p.Committed, begin)
		case p.Committed > 0: // at 0 nothing was lost: nothing was ever committed there
			log.Warn("the group has no offset for a partition; going on from the position kept in the catalog")
			from.offset, from.metadata = p.Committed, p.Metadata
		}
		l.found(at, from)
	}
	return err
}

func (l *startOffsets) ingress(at partition) bool {
	place, _ := l.opt.place(at.Topic)
	return place == delivery.FromIngress
}

// expired logs and counts what it means that a partition of ingress, in which the group had committed an offset, is read from the
// earliest record.
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

func (l *startOffsets) found(at partition, s start) {
	s.topic = cmp.Or(s.topic, l.topics[at.Topic])
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.missing[at]; found != nil {
		found <- s
		delete(l.missing, at)
	}
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
