package count

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// Records are the records of one campaign in the broker after the daemons have stopped.
type Records struct {
	Waiting map[string]bool // ids in ingress, lanes and timers beyond what is committed or settled
	Dead    map[string]bool // ids among the dead letters, except the expired ones
	Expired map[string]bool
	Lanes   map[string]int // id -> the most hops that a record of it in a lane states
}

// inventory reads what is in the broker after the daemons have stopped.
type inventory struct {
	client *broker.Client
	prefix string // of the topics

	mu    sync.Mutex // guards found
	found map[string]Records
}

// Inventory reads every partition of ingress, lanes, timers and dead letters from the start, after the daemons of the
// group have stopped. It returns the records by campaign.
func Inventory(ctx context.Context, client *broker.Client, group string, spec requeue.TopicSpec) (map[string]Records, error) {
	v := &inventory{client: client, prefix: spec.Prefix, found: make(map[string]Records)}
	if err := v.read(ctx, group, spec.Names()); err != nil {
		return nil, fmt.Errorf("read what is left in the broker: %w", err)
	}
	return v.found, nil
}

func (v *inventory) read(ctx context.Context, group string, topics []string) error {
	partitions, err := v.client.PartitionsOf(ctx, topics...)
	if err != nil {
		return err
	}
	commits, err := v.client.Committed(ctx, group, partitions)
	if err != nil {
		return err
	}
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(4)
	for _, at := range partitions {
		readers.Go(func() error { return v.readPartition(ctx, at, commits[at]) })
	}
	return readers.Wait()
}

// readPartition reads one partition. If nothing is committed, all of it is open.
func (v *inventory) readPartition(ctx context.Context, at broker.Partition, committed broker.Commit) error {
	lane, dead := at.Topic == requeue.LaneTopic(v.prefix), at.Topic == requeue.DeadTopic(v.prefix)
	open, err := offset.Unsettled(lane, committed.Offset, committed.Metadata)
	if err != nil {
		return fmt.Errorf("read the commit of %s: %w", at, err)
	}
	for r, err := range v.client.Scan(ctx, at, 0) {
		if err != nil {
			return err
		}
		campaign := r.Header(delivery.HeaderCampaign)
		v.note(campaign, &r, lane, dead, !dead && open(campaign, r.Offset))
	}
	return nil
}

func (v *inventory) note(campaign string, r *delivery.Record, lane, dead, open bool) {
	id := r.Header(delivery.HeaderJobID)
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok := v.found[campaign]
	if !ok {
		found = Records{
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
