package consumer

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/retry"
)

// The protocols that a member offers, the best first; the group takes one that all its members have. What a protocol's name stands
// for must never change.
//
// In a cooperative group, members go on with what they hold while the group rebalances: see tenure. In the others, which have
// members of earlier versions, they let go of everything before they join; but in the first generation of such a group, members may
// still hold what they had in a cooperative one. A sticky group deals by what the members had; an even one by nothing, since some do
// not say it.
const (
	cooperativeProtocol = "pacer-cooperative-1"
	stickyProtocol      = "pacer-sticky-1"
	evenProtocol        = "pacer-even-1"
)

// ownership is what a member had, in the generation in which it had it. Members say it as JSON when they join.
type ownership struct {
	Generation int              `json:"generation"`
	Partitions map[string][]int `json:"partitions"`     // by topic
	Held       bool             `json:"held,omitempty"` // it goes on with them while it joins: nobody else may begin
	// Leaving is what it holds as well, and has begun to let go of: that is to be dealt to others, once it is not held.
	Leaving map[string][]int `json:"leaving,omitempty"`
}

// owned makes an ownership.
func owned(generation int, partitions []partition, held bool) ownership {
	return ownership{Generation: generation, Partitions: byTopic(partitions), Held: held}
}

func byTopic(partitions []partition) map[string][]int {
	topics := map[string][]int{}
	for _, at := range partitions {
		topics[at.Topic] = append(topics[at.Topic], at.ID)
	}
	return topics
}

// offers are the protocols of a member that had this, or has it.
func offers(mine ownership) (list []broker.Protocol) {
	var said []byte
	if mine.Generation > 0 {
		said, _ = json.Marshal(mine) // numbers and strings
	}
	for _, name := range []string{cooperativeProtocol, stickyProtocol, evenProtocol} {
		list = append(list, broker.Protocol{Name: name, Data: said})
	}
	return list
}

// withheld is what a leader of this version says to each member: what the member held, and does not find in its hand, is dealt to
// nobody. Leaders of earlier versions say nothing.
const withheld = "withheld"

// hands are what each member is dealt, by topic.
type hands = map[string]map[string][]int

// deal deals the partitions of all topics, of which there are so many, to the members of the group: each topic evenly, and all of
// them together, and what a member had it keeps as far as that allows. So a join or a leave moves little more than it must. The
// balancers of kafka-go start over at the first member with each topic, so that with many topics of few partitions (timers) the
// first member gets nearly all. Every member must subscribe to the same topics, as the daemons of one group do.
//
// A topic that is not there at the moment stays with those who had it. What another member still holds is dealt to nobody: its
// holder finds it missing, lets go of it, and joins again.
func deal(protocol string, members []broker.Subscriber, counts map[string]int) hands {
	claims := map[string]ownership{}
	for _, m := range members {
		var c ownership
		if json.Unmarshal(m.Data, &c) == nil { // one that cannot be read counts as none
			claims[m.ID] = c
		}
	}
	had := claims
	if protocol == evenProtocol {
		had = nil
	}
	all, holders := dealAll(members, partitionsOf(members, counts, claims), had), holdersOf(claims)
	for id, topics := range all {
		for topic, list := range topics {
			topics[topic] = slices.DeleteFunc(list, func(p int) bool {
				holder, held := holders[partition{Topic: topic, ID: p}]
				return held && holder != id
			})
		}
	}
	return all
}

// partitionsOf lists the partitions of each topic.
func partitionsOf(members []broker.Subscriber, counts map[string]int, claims map[string]ownership) map[string][]int {
	topics := map[string][]int{}
	for topic, n := range counts {
		for p := range n {
			topics[topic] = append(topics[topic], p)
		}
	}
	for _, m := range members {
		for topic, list := range claims[m.ID].Partitions {
			if counts[topic] == 0 {
				topics[topic] = append(topics[topic], list...)
			}
		}
	}
	for topic, list := range topics {
		slices.Sort(list)
		topics[topic] = slices.Compact(list)
	}
	return topics
}

// holdersOf returns which member holds each partition. Of two who say so, the one of the later generation does.
func holdersOf(claims map[string]ownership) map[partition]string {
	holders := map[partition]string{}
	for _, id := range slices.Sorted(maps.Keys(claims)) {
		c := claims[id]
		if !c.Held {
			continue
		}
		for _, topics := range []map[string][]int{c.Partitions, c.Leaving} {
			for topic, list := range topics {
				for _, p := range list {
					at := partition{Topic: topic, ID: p}
					if other, found := holders[at]; !found || c.Generation > claims[other].Generation {
						holders[at] = id
					}
				}
			}
		}
	}
	return holders
}

func dealAll(members []broker.Subscriber, topics map[string][]int, claims map[string]ownership) hands {
	members = slices.SortedFunc(slices.Values(members), func(a, b broker.Subscriber) int { return cmp.Compare(a.ID, b.ID) })
	all, totals := hands{}, map[string]int{}
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
		dealTopic(readers, topics[topic], owners(topic, readers, claims))
		for _, h := range readers {
			if len(h.has) > 0 {
				all[h.id][topic] = h.has
				totals[h.id] += len(h.has)
			}
		}
	}
	return all
}

// hand is what a member gets of one topic.
type hand struct {
	id     string
	total  int // partitions of the topics before
	has    []int
	count  int // of those that it has so far
	target int
	crowd  []float64 // for each partition of the topic, how near to it the member has others
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

// dealTopic deals the partitions of one topic, in ascending order, to its readers. Those with more than their share give up what is
// nearest to others that they have, and each partition goes where the fewest are near to it. So whoever came and went, the lanes of
// one campaign, which are neighbours, are with many daemons.
func dealTopic(readers []*hand, partitions []int, owner map[int]*hand) {
	if len(readers) == 0 {
		return
	}
	for _, h := range readers {
		h.crowd = make([]float64, len(partitions))
	}
	nobody := &hand{}
	holders := make([]*hand, len(partitions))
	for i, p := range partitions {
		if holders[i] = owner[p]; holders[i] == nil {
			holders[i] = nobody
		}
		holders[i].put(i, 1)
	}
	// Those with the fewest partitions so far get one more, and among them those who had it.
	byNeed := slices.SortedStableFunc(slices.Values(readers), func(a, b *hand) int {
		return cmp.Or(cmp.Compare(a.total, b.total), cmp.Compare(b.count, a.count))
	})
	for i, h := range byNeed {
		h.target = len(partitions) / len(readers)
		if i < len(partitions)%len(readers) {
			h.target++
		}
	}
	for moves := true; moves; {
		moves = false
		for _, h := range readers {
			if h.count < h.target {
				i := h.choose(holders)
				holders[i].put(i, -1)
				holders[i] = h
				h.put(i, 1)
				moves = true
			}
		}
	}
	for i, h := range holders {
		h.has = append(h.has, partitions[i])
	}
}

// choose returns which partition goes to the member: one of those whose holders have more than their target.
func (h *hand) choose(holders []*hand) (best int) {
	least := math.Inf(1)
	for i, from := range holders {
		if from.count <= from.target {
			continue
		}
		if crowd := h.near(i) - from.near(i); crowd < least {
			best, least = i, crowd
		}
	}
	return best
}

// near says how near to the i-th partition the member has others: the sum of 1 / distance, on a circle.
func (h *hand) near(i int) float64 {
	if h.crowd == nil {
		return 0 // nobody's
	}
	return h.crowd[i]
}

// put adds the i-th partition to those of the member, or takes it away (-1).
func (h *hand) put(i, sign int) {
	h.count += sign
	for k := range h.crowd {
		if away := max(i-k, k-i); away > 0 {
			h.crowd[k] += float64(sign) / float64(min(away, len(h.crowd)-away))
		}
	}
}

// watchPartitions calls changed when the topics have other numbers of partitions than the leader has dealt, and returns then, or
// when ctx ends. Only when the leader joins again are partitions dealt anew.
func (c *Consumer) watchPartitions(ctx context.Context, dealt map[string]int, changed func()) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	retry.Every(ctx, c.opt.partitionsWatched, func(time.Time) {
		counts, err := c.opt.Client.Counts(ctx, c.opt.topics())
		switch {
		case err != nil:
			c.opt.Logger.Debug("the numbers of partitions cannot be read; trying again", "error", err)
		case !maps.Equal(counts, dealt):
			c.opt.Logger.Info("topics have other partitions than before; the group is rebalanced")
			changed()
			stop()
		}
	})
}
