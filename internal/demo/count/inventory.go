package count

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/requeue"
)

// Records are the records of one campaign in the broker after the daemons have stopped.
type Records struct {
	Waiting map[string]bool // ids in ingress, lanes and timers beyond what is committed or settled
	Dead    map[string]bool // ids among the dead letters, except the expired ones
	Expired map[string]bool
	Lanes   map[string]int // id -> the most hops that a record of it in a lane states
}

// Inventory reads every partition of ingress, lanes, timers and dead letters from the start, after the daemons of the
// group have stopped. It returns the records by campaign.
func Inventory(ctx context.Context, client *broker.Client, group string, spec requeue.TopicSpec) (map[string]Records, error) {
	all := make(map[string]Records)
	topics := jobs.Topics{Client: client, Group: group, TopicSpec: spec}
	err := topics.Each(ctx, spec.Names(), true, func(at broker.Partition, r *delivery.Record, open bool) {
		campaign, id := r.Header(delivery.HeaderCampaign), r.Header(delivery.HeaderJobID)
		found, ok := all[campaign]
		if !ok {
			found = Records{
				Waiting: make(map[string]bool), Dead: make(map[string]bool), Expired: make(map[string]bool),
				Lanes: make(map[string]int),
			}
			all[campaign] = found
		}
		switch dead := at.Topic == requeue.DeadTopic(spec.Prefix); {
		case dead && delivery.Reason(r.Header(delivery.HeaderReason)) == delivery.ReasonExpired:
			found.Expired[id] = true
		case dead:
			found.Dead[id] = true
		case open:
			found.Waiting[id] = true
		}
		if at.Topic == requeue.LaneTopic(spec.Prefix) {
			hops, _ := strconv.Atoi(r.Header(delivery.HeaderHops)) // absent or unreadable: 0
			found.Lanes[id] = max(found.Lanes[id], hops)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read what is left in the broker: %w", err)
	}
	return all, nil
}
