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
	turn    *turn
	now     time.Time
	lanes   map[string][]int // by campaign, those that accept records if there are any
	stripes map[route]*stripes
	topics  map[string]layout
	back    []*item // those for which there is no lane but the one that they come from
}

// route is what the lane of a job depends on, besides where it was read.
type route struct {
	campaign string
	from     int // the lane that it is not written to; -1: none
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
	p := &plan{turn: t, now: time.Now(), stripes: make(map[route]*stripes), topics: make(map[string]layout)}
	p.findLanes(ctx, items)
	var chunks []broker.Chunk[*item]
	of := make(map[broker.Partition]int)
	for _, it := range items {
		to := it.at
		if !it.unknown {
			to = p.destination(ctx, it)
		}
		if to.ID == noPartition {
			p.back = append(p.back, it)
			continue
		}
		i, known := of[to]
		if !known {
			i = len(chunks)
			of[to] = i
			chunks = append(chunks, broker.Chunk[*item]{To: to})
		}
		chunks[i].Items = append(chunks[i].Items, it)
	}
	giveBack(p.back)
	return p.withoutStalled(chunks)
}

// noPartition stands for the lane of an item that has none.
const noPartition = -2

// laneSource is a lane as a source of jobs.
type laneSource interface {
	Lane() int
	// Release takes a job back, and GrantCapacity says that there is room for units of its campaign.
	Release(campaign string, offset int64)
	GrantCapacity(campaign string, units int64)
}

// giveBack gives items back to the lanes that they were read from. These read them again: the least room is enough for that.
func giveBack(items []*item) {
	for _, it := range slices.Backward(items) {
		if from, ok := it.job.Source.(laneSource); ok {
			campaign := it.job.Campaign
			from.Release(campaign, it.job.Offset)
			from.GrantCapacity(campaign, 1)
		}
	}
}

// withoutStalled returns the chunks that may be written.
func (p *plan) withoutStalled(chunks []broker.Chunk[*item]) (free []broker.Chunk[*item]) {
	t := p.turn
	t.relay.mu.Lock()
	defer t.relay.mu.Unlock()
	for _, c := range chunks {
		at := place{at: c.To}
		if c.To.ID != anyPartition && t.box.held[at] == nil {
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
	for at := range p.turn.box.held {
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

// findLanes finds the lanes of all campaigns of the batch at once.
func (p *plan) findLanes(ctx context.Context, items []*item) {
	r := p.turn.relay
	var campaigns []string
	seen := make(map[string]bool)
	for _, it := range items {
		if it.to.Kind == delivery.ToLane && !it.unknown && !seen[it.job.Campaign] {
			seen[it.job.Campaign] = true
			campaigns = append(campaigns, it.job.Campaign)
		}
	}
	if len(campaigns) == 0 {
		return
	}
	l := p.layout(ctx, LaneTopic(r.opts.Topics.Prefix))
	if l.partitions == 0 {
		return
	}
	p.lanes = r.pins.find(ctx, campaigns, l.avoid)
	for id, lanes := range p.lanes {
		if free := leaveOut(lanes, l.held); len(free) > 0 {
			p.lanes[id] = free
		}
	}
}

// lane returns the lane for an item. A job that is moved to another lane of its campaign gets none that refuses records: it
// can stay where it is.
func (p *plan) lane(it *item, l layout) int {
	to := route{campaign: it.job.Campaign, from: -1}
	if from, ok := it.job.Source.(laneSource); ok && it.to.Reason == delivery.ReasonWidened {
		to.from = from.Lane()
	}
	of := p.stripes[to]
	if of == nil {
		of = &stripes{lanes: p.lanes[to.campaign]}
		waiting := p.turn.relay.opts.Waiting
		switch {
		case to.from >= 0:
			of.lanes = leaveOut(leaveOut(of.lanes, []int{to.from}), l.held)
			if len(of.lanes) > 1 && waiting != nil {
				of.lanes = level(of.lanes, waiting(to.campaign))
			}
		case len(of.lanes) > 1 && waiting != nil:
			of.weigh(waiting(to.campaign))
		}
		p.stripes[to] = of
	}
	if len(of.lanes) == 0 {
		return noPartition
	}
	return of.of(it.job) % l.partitions
}

// destination chooses the partition of an item. The items of a source share a timer's partition: they come back in
// their order, and need few requests.
func (p *plan) destination(ctx context.Context, it *item) broker.Partition {
	var topic, key string
	topics := &p.turn.relay.opts.Topics
	switch it.to.Kind {
	case delivery.ToLane:
		topic = LaneTopic(topics.Prefix)
	case delivery.ToTimer:
		topic, key = TimerTopic(topics.Prefix, TimerFor(topics.Timers, p.now, record.DueAt(it.job, it.to))), it.job.Source.Name()
	default:
		topic, key = DeadTopic(topics.Prefix), it.job.Campaign
	}
	l := p.layout(ctx, topic)
	if l.partitions == 0 {
		return broker.Partition{Topic: topic, ID: anyPartition}
	}
	if it.to.Kind == delivery.ToLane {
		return broker.Partition{Topic: topic, ID: p.lane(it, l)}
	}
	return broker.Partition{Topic: topic, ID: without(l.avoid, broker.HashPartition(key, l.partitions), l.partitions)}
}
