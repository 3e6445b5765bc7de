package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// openRecords tells which records of one partition are not settled: it is made from the partition's committed offset
// and the metadata of that commit. For a lane, what is settled differs from campaign to campaign.
type openRecords func(lane bool, committed int64, metadata string) (open func(campaign string, offset int64) bool, err error)

// inventory reads, after the daemons have stopped, what the broker holds of every campaign.
type inventory struct {
	client *kafka.Client
	group  string
	spec   requeue.TopicSpec
	open   openRecords

	mu    sync.Mutex // guards found
	found map[string]*records
}

// commit is one committed offset of a partition; offset -1 if there is none.
type commit struct {
	offset   int64
	metadata string
}

// take reads every partition of ingress, lanes, timers and dead letters from the start.
func (v *inventory) take(ctx context.Context) (map[string]*records, error) {
	v.found = make(map[string]*records)
	names := v.spec.Names()
	partitions := make(map[string][]int, len(names))
	for _, topic := range names {
		n, err := requeue.Partitions(ctx, v.client, topic)
		if err != nil {
			return nil, fmt.Errorf("read what is left in the broker: %w", err)
		}
		for p := range n {
			partitions[topic] = append(partitions[topic], p)
		}
	}
	commits, err := v.commits(ctx, partitions)
	if err != nil {
		return nil, fmt.Errorf("read what is left in the broker: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for topic, ids := range partitions {
		for _, p := range ids {
			group.Go(func() error { return v.read(ctx, topic, p, commits[topic][p]) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("read what is left in the broker: %w", err)
	}
	return v.found, nil
}

// commits asks for the group's offset of each partition.
func (v *inventory) commits(ctx context.Context, partitions map[string][]int) (map[string]map[int]commit, error) {
	answer, err := v.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: v.group, Topics: partitions})
	if err == nil {
		err = answer.Error
	}
	if errors.Is(err, kafka.GroupIdNotFound) {
		answer, err = &kafka.OffsetFetchResponse{}, nil // nobody ever committed anything
	}
	if err != nil {
		return nil, fmt.Errorf("read the offsets of group %s: %w", v.group, err)
	}
	commits := make(map[string]map[int]commit, len(partitions))
	for topic, ids := range partitions {
		commits[topic] = make(map[int]commit, len(ids))
		for _, p := range ids {
			commits[topic][p] = commit{offset: -1}
		}
		for _, p := range answer.Topics[topic] {
			if p.Error != nil {
				return nil, fmt.Errorf("read the offset of %s/%d: %w", topic, p.Partition, p.Error)
			}
			commits[topic][p.Partition] = commit{offset: p.CommittedOffset, metadata: p.Metadata}
		}
	}
	return commits, nil
}

// read walks one partition.
func (v *inventory) read(ctx context.Context, topic string, partition int, at commit) error {
	prefix := v.spec.Prefix
	lane, dead := topic == requeue.LaneTopic(prefix), topic == requeue.DeadTopic(prefix)
	open, err := v.open(lane, max(at.offset, 0), at.metadata)
	if err != nil {
		return fmt.Errorf("read the commit of %s/%d: %w", topic, partition, err)
	}
	err = requeue.Scan(ctx, v.client, topic, partition, requeue.FromStart, func(r requeue.Record) error {
		campaign := r.Header(delivery.HeaderCampaign)
		v.note(campaign, &r, lane, dead, !dead && open(campaign, r.Offset))
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s/%d: %w", topic, partition, err)
	}
	return nil
}

// note adds one record to what was found.
func (v *inventory) note(campaign string, r *requeue.Record, lane, dead, open bool) {
	id := r.Header(delivery.HeaderJobID)
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.found[campaign]
	if found == nil {
		found = &records{
			Waiting: make(map[string]bool), Dead: make(map[string]bool), Expired: make(map[string]bool),
			Lanes: make(map[string]int),
		}
		v.found[campaign] = found
	}
	switch {
	case dead && delivery.Reason(r.Header(delivery.HeaderReason)) == delivery.ReasonExpired:
		found.Expired[id] = true
	case dead:
		found.Dead[id] = true
	case open:
		found.Waiting[id] = true
	}
	if lane {
		hops, _ := strconv.Atoi(r.Header(delivery.HeaderHops)) // absent or unreadable: 0
		found.Lanes[id] = max(found.Lanes[id], hops)
	}
}
