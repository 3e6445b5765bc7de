package requeue

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// plan chooses the partitions of one batch, whose items have one source.
type plan struct {
	turn   *turn
	source string // of all items
	lanes  string // their topic
	now    time.Time
	topics map[string]layout
}

// layout is what a plan knows of a topic; partitions is 0 if they cannot be counted.
type layout struct {
	partitions int
	avoid      []int
	held       []int // what was put for these partitions waits, since they refuse
	err        error
}

// plan groups the items by partition, in their order. Items whose partition is held, or whose topic has no known layout,
// are left out: they have failed.
func (t *turn) plan(ctx context.Context, items []*item) []broker.Chunk[*item] {
	p := &plan{turn: t, now: time.Now(), lanes: LaneTopic(t.relay.opts.Topics.Prefix), topics: make(map[string]layout)}
	if len(items) > 0 {
		p.source = items[0].job.Source.Name()
	}
	var chunks []broker.Chunk[*item]
	of := make(map[broker.Partition]int)
	for _, it := range items {
		to := it.at
		if !it.unknown {
			to = p.destination(ctx, it)
		}
		i, known := of[to]
		if !known {
			i = len(chunks)
			of[to] = i
			chunks = append(chunks, broker.Chunk[*item]{To: to})
		}
		chunks[i].Items = append(chunks[i].Items, it)
	}
	return p.withoutStalled(chunks)
}

// withoutStalled returns the chunks that may be written.
func (p *plan) withoutStalled(chunks []broker.Chunk[*item]) (free []broker.Chunk[*item]) {
	t := p.turn
	t.relay.mu.Lock()
	defer t.relay.mu.Unlock()
	for _, c := range chunks {
		at := place{at: c.To}
		if c.To.ID != anyPartition && t.relay.box.held[at] == nil {
			free = append(free, c)
			continue
		}
		f := failure{place: at, items: c.Items}
		if c.To.ID == anyPartition {
			f.err = p.topics[c.To.Topic].err
		}
		t.failures = append(t.failures, f)
	}
	return free
}

// layout returns what is known of a topic. A topic whose layout could not be read is left to the attempts of its hold.
func (p *plan) layout(ctx context.Context, topic string) layout {
	l, known := p.topics[topic]
	if known {
		return l
	}
	r := p.turn.relay
	r.mu.Lock()
	for at := range r.box.held {
		if at.at.Topic == topic && !at.large {
			l.held = append(l.held, at.at.ID)
		}
	}
	l.avoid = r.avoid(topic, p.now)
	r.mu.Unlock()
	if !slices.Contains(l.held, anyPartition) {
		l.partitions, l.err = r.opts.Client.Partitions(ctx, topic)
	}
	p.topics[topic] = l
	return l
}

// destination chooses the partition of an item. The items of a source share a timer's partition: they come back in
// their order, and need few requests.
func (p *plan) destination(ctx context.Context, it *item) broker.Partition {
	var topic, key string
	topics := &p.turn.relay.opts.Topics
	switch it.to.Kind {
	case delivery.ToLane:
		topic = p.lanes
	case delivery.ToTimer:
		topic, key = TimerTopic(topics.Prefix, TimerFor(topics.Timers, p.now, record.DueAt(it.job, it.to))), p.source
	case delivery.ToResult:
		topic, key = ResultsTopic(topics.Prefix), it.job.ID
	default:
		topic, key = DeadTopic(topics.Prefix), it.job.Campaign
	}
	l := p.layout(ctx, topic)
	if l.partitions == 0 {
		return broker.Partition{Topic: topic, ID: anyPartition}
	}
	if it.to.Kind == delivery.ToLane {
		return broker.Partition{Topic: topic, ID: p.turn.relay.backlogs.laneOf(it.job, p.source, l)}
	}
	return broker.Partition{Topic: topic, ID: without(l.avoid, broker.HashPartition(key, l.partitions), l.partitions)}
}
