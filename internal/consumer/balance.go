package consumer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/retry"
)

// evenBalancer assigns all partitions of all topics round-robin, without starting over at the first member for each
// topic. The balancers of kafka-go start over with each topic, so that with many topics of few partitions (timers)
// the first member gets nearly all. Every member must subscribe to the same topics, as the daemons of one group do.
//
// It remembers what it has dealt, so that the leader can tell when that is no longer all; see watchPartitions. The zero
// value is ready.
type evenBalancer struct {
	dealt atomic.Pointer[map[string]int] // partitions by topic, of the last assignment; nil: none since taken
}

// taken returns what was dealt since the last call; nil if another member was the leader.
func (b *evenBalancer) taken() map[string]int {
	if dealt := b.dealt.Swap(nil); dealt != nil {
		return *dealt
	}
	return nil
}

// ProtocolName is what the members of a group agree on; it changes when the result of AssignGroups does.
func (*evenBalancer) ProtocolName() string { return "pacer-even-1" }

// UserData is empty.
func (*evenBalancer) UserData() ([]byte, error) { return nil, nil }

// AssignGroups assigns partitions to members, both in a fixed order.
func (b *evenBalancer) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	members, partitions = slices.Clone(members), slices.Clone(partitions)
	slices.SortFunc(members, func(a, b kafka.GroupMember) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(partitions, func(a, b kafka.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	all := kafka.GroupMemberAssignments{}
	for _, m := range members {
		all[m.ID] = map[string][]int{}
	}
	next, dealt := 0, map[string]int{}
	for _, p := range partitions {
		dealt[p.Topic]++
		for range members {
			m := members[next%len(members)]
			next++
			if slices.Contains(m.Topics, p.Topic) {
				all[m.ID][p.Topic] = append(all[m.ID][p.Topic], p.ID)
				break
			}
		}
	}
	b.dealt.Store(&dealt)
	return all
}

// watchPartitions returns when the topics have other numbers of partitions than were dealt, or ctx ends. Only the leader
// of the group knows what was dealt, and only when the leader joins again are partitions dealt anew: the others wait
// until ctx ends. kafka-go's own watch takes the numbers at its beginning for those dealt, and does not see partitions
// that were added in between, while the group rebalanced.
func (c *Consumer) watchPartitions(ctx context.Context, dealt map[string]int) {
	if dealt == nil {
		<-ctx.Done()
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	retry.Every(ctx, c.opt.partitionsWatched, func(time.Time) {
		counts, err := c.opt.Client.Counts(ctx, c.opt.topics())
		switch {
		case err != nil:
			c.opt.Logger.Debug("the numbers of partitions cannot be read; trying again", "error", err)
		case !maps.Equal(counts, dealt):
			c.opt.Logger.Info("topics have other partitions than before; the group is rebalanced")
			stop()
		}
	})
}
