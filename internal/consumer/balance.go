package consumer

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/retry"
)

// A dealer deals the partitions of all topics to the members of the group: each topic evenly, and all of them together, and
// what a member had it keeps as far as that allows. So a join or a leave moves little more than it must. The balancers of
// kafka-go start over at the first member with each topic, so that with many topics of few partitions (timers) the first
// member gets nearly all. Every member must subscribe to the same topics, as the daemons of one group do.
//
// It remembers what it has dealt, so that the leader can tell when that is no longer all; see watchPartitions. The zero
// value is ready. Safe for use by several goroutines.
type dealer struct {
	dealt atomic.Pointer[map[string]int] // partitions by topic, of the last assignment; nil: none since taken
	owned atomic.Pointer[ownership]      // what this member was dealt last; nil: nothing yet
}

// ownership is what a member had, in the generation in which it had it. Members exchange it as JSON.
type ownership struct {
	Generation int32            `json:"generation"`
	Partitions map[string][]int `json:"partitions"` // by topic
}

// taken returns what was dealt since the last call; nil if another member was the leader.
func (d *dealer) taken() map[string]int {
	if dealt := d.dealt.Swap(nil); dealt != nil {
		return *dealt
	}
	return nil
}

// own records what this member was dealt.
func (d *dealer) own(gen *kafka.Generation) {
	mine := ownership{gen.ID, map[string][]int{}}
	for topic, list := range gen.Assignments {
		for _, p := range list {
			mine.Partitions[topic] = append(mine.Partitions[topic], p.ID)
		}
	}
	d.owned.Store(&mine)
}

// balancers are the protocols that this member offers; the group takes one that all its members have.
func (d *dealer) balancers() []kafka.GroupBalancer {
	return []kafka.GroupBalancer{stickyBalancer{d}, evenBalancer{d}}
}

// stickyBalancer deals by what members had. What a protocol's name stands for must never change.
type stickyBalancer struct{ *dealer }

// ProtocolName is what the members of a group agree on.
func (stickyBalancer) ProtocolName() string { return "pacer-sticky-1" }

// UserData is the claim of this member.
func (b stickyBalancer) UserData() ([]byte, error) {
	mine := b.owned.Load()
	if mine == nil {
		return nil, nil
	}
	return json.Marshal(mine)
}

// AssignGroups deals the partitions. A claim that cannot be read counts as none.
func (b stickyBalancer) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	claims := map[string]ownership{}
	for _, m := range members {
		var c ownership
		if err := json.Unmarshal(m.UserData, &c); err == nil {
			claims[m.ID] = c
		}
	}
	return b.deal(members, partitions, claims)
}

// evenBalancer deals without regard to what members had: the protocol of members that do not say it.
type evenBalancer struct{ *dealer }

// ProtocolName is what the members of a group agree on.
func (evenBalancer) ProtocolName() string { return "pacer-even-1" }

// UserData is empty.
func (evenBalancer) UserData() ([]byte, error) { return nil, nil }

// AssignGroups deals the partitions.
func (b evenBalancer) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	return b.deal(members, partitions, nil)
}

func (d *dealer) deal(members []kafka.GroupMember, partitions []kafka.Partition, claims map[string]ownership) kafka.GroupMemberAssignments {
	members = slices.SortedFunc(slices.Values(members), func(a, b kafka.GroupMember) int { return cmp.Compare(a.ID, b.ID) })
	topics, dealt := map[string][]int{}, map[string]int{}
	for _, p := range partitions {
		topics[p.Topic] = append(topics[p.Topic], p.ID)
		dealt[p.Topic]++
	}
	all, totals := kafka.GroupMemberAssignments{}, map[string]int{}
	for _, m := range members {
		all[m.ID] = map[string][]int{}
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		var readers []*hand
		for _, m := range members {
			if slices.Contains(m.Topics, topic) {
				readers = append(readers, &hand{id: m.ID, total: totals[m.ID]})
			}
		}
		slices.Sort(topics[topic])
		dealTopic(readers, topics[topic], owners(topic, readers, claims))
		for _, h := range readers {
			if len(h.has) > 0 {
				all[h.id][topic] = h.has
				totals[h.id] += len(h.has)
			}
		}
	}
	d.dealt.Store(&dealt)
	return all
}

// hand is what a member gets of one topic.
type hand struct {
	id     string
	total  int // partitions of the topics before
	has    []int
	target int
}

// owners returns who had each partition of a topic. Of two who say so, the one of the later generation had it; the other
// has missed that it lost it.
func owners(topic string, readers []*hand, claims map[string]ownership) map[int]*hand {
	found := map[int]*hand{}
	for _, h := range readers {
		for _, p := range claims[h.id].Partitions[topic] {
			if other := found[p]; other == nil || claims[h.id].Generation > claims[other.id].Generation {
				found[p] = h
			}
		}
	}
	return found
}

// dealTopic deals the partitions of one topic, in ascending order, to its readers.
func dealTopic(readers []*hand, partitions []int, owner map[int]*hand) {
	if len(readers) == 0 {
		return
	}
	var free []int
	for _, p := range partitions {
		if h := owner[p]; h != nil {
			h.has = append(h.has, p)
		} else {
			free = append(free, p)
		}
	}
	// Those with the fewest partitions so far get one more, and among them those who had it.
	byNeed := slices.SortedStableFunc(slices.Values(readers), func(a, b *hand) int {
		return cmp.Or(cmp.Compare(a.total, b.total), cmp.Compare(len(b.has), len(a.has)))
	})
	for i, h := range byNeed {
		h.target = len(partitions) / len(readers)
		if i < len(partitions)%len(readers) {
			h.target++
		}
	}
	for i, h := range readers {
		free = append(free, h.giveUp(i, len(readers))...)
	}
	slices.Sort(free)
	next := 0
	for _, p := range free {
		for len(readers[next%len(readers)].has) >= readers[next%len(readers)].target {
			next++
		}
		h := readers[next%len(readers)]
		h.has = append(h.has, p)
		next++
	}
	for _, h := range readers {
		slices.Sort(h.has)
	}
}

// giveUp takes away what exceeds the target, spread evenly over what the i-th of n readers has, so that neighbours stay with
// different members.
func (h *hand) giveUp(i, n int) (given []int) {
	had, surplus := h.has, len(h.has)-h.target
	if surplus <= 0 {
		return nil
	}
	h.has = nil
	phase := i * len(had) / n
	for k, p := range had {
		if (k*surplus+phase)/len(had) != ((k+1)*surplus+phase)/len(had) {
			given = append(given, p)
		} else {
			h.has = append(h.has, p)
		}
	}
	return given
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
