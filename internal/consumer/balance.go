package consumer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/pacer/pacer/internal/broker"
)

// groupProtocol names how the leader of the group deals, and the format of claims. A group has members of one protocol only.
const groupProtocol = "pacer-1"

// claims are what a member holds while it joins, since a generation. It goes on with them, so no other member may begin. Members send
// them to the leader as JSON.
type claims struct {
	Generation int              `json:"generation"`
	Kept       map[string][]int `json:"kept,omitempty"`    // by topic
	Leaving    map[string][]int `json:"leaving,omitempty"` // held until their jobs in flight have ended; then others get them
}

func (c claims) encode() []byte {
	said, _ := json.Marshal(c) // numbers and strings
	return said
}

// shares are what each member is dealt, by topic.
type shares = map[string]map[string][]int

// dealt is a member of the group while the leader deals.
type dealt struct {
	broker.Subscriber
	claims
	total         int // partitions of the topics before
	count, target int // partitions of one topic that it has so far, and is to have
}

// assignPartitions deals the partitions of all topics (counts) to the members of the group: each topic evenly, and all of them together.
// A member keeps what it holds as far as that allows, so a join or a leave moves little more than it must. All members subscribe to the
// same topics, except those that stop, which subscribe to none.
//
// A topic that is not there at the moment stays with those who hold it. A partition that another member still holds is not dealt: its
// holder finds it missing, lets go of it, and joins again.
func assignPartitions(subscribers []broker.Subscriber, counts map[string]int) (shares, error) {
	all, topics := shares{}, map[string][]int{}
	for topic, n := range counts {
		for p := range n {
			topics[topic] = append(topics[topic], p)
		}
	}
	var members []*dealt
	keeper, holder := map[partition]*dealt{}, map[partition]*dealt{}
	for _, s := range slices.SortedFunc(slices.Values(subscribers), func(a, b broker.Subscriber) int { return cmp.Compare(a.ID, b.ID) }) {
		m := &dealt{Subscriber: s}
		if err := json.Unmarshal(s.Data, &m.claims); err != nil {
			return nil, fmt.Errorf("what member %s of the group holds: %w", s.ID, err)
		}
		members, all[s.ID] = append(members, m), map[string][]int{}
		hold := func(at partition, keeps bool) {
			if other := holder[at]; other != nil && other.Generation >= m.Generation {
				return
			}
			if holder[at] = m; keeps {
				keeper[at] = m
			} else {
				delete(keeper, at)
			}
		}
		for topic, list := range m.Kept {
			if counts[topic] == 0 {
				topics[topic] = append(topics[topic], list...)
			}
			for _, p := range list {
				hold(partition{Topic: topic, ID: p}, true)
			}
		}
		for topic, list := range m.Leaving {
			for _, p := range list {
				hold(partition{Topic: topic, ID: p}, false)
			}
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		slices.Sort(topics[topic])
		partitions := slices.Compact(topics[topic])
		for i, m := range assignTopic(topic, partitions, members, keeper) {
			m.total++
			if at := (partition{Topic: topic, ID: partitions[i]}); holder[at] == nil || holder[at] == m {
				all[m.ID][topic] = append(all[m.ID][topic], at.ID)
			}
		}
	}
	return all, nil
}

// assignTopic returns who of the members that subscribe to a topic is to have each of its partitions. Those with more than their share
// give up some, which go in turn to those with less.
func assignTopic(topic string, partitions []int, members []*dealt, keeper map[partition]*dealt) (has []*dealt) {
	members = slices.DeleteFunc(slices.Clone(members), func(m *dealt) bool { return !slices.Contains(m.Topics, topic) })
	if len(members) == 0 {
		return nil
	}
	for _, m := range members {
		m.count, m.target = 0, 0
	}
	has = make([]*dealt, len(partitions))
	for i, p := range partitions {
		if m := keeper[partition{Topic: topic, ID: p}]; slices.Contains(members, m) {
			has[i] = m
			m.count++
		}
	}
	// Those with the fewest partitions so far get one more, and among them those who had it.
	slices.SortStableFunc(members, func(a, b *dealt) int {
		return cmp.Or(cmp.Compare(a.total, b.total), cmp.Compare(b.count, a.count))
	})
	for i := range partitions {
		members[i%len(members)].target++
	}
	turn := 0
	for i, from := range has {
		switch {
		case from == nil:
		case from.count > from.target:
			from.count--
		default:
			continue
		}
		for has[i] = nil; has[i] == nil; turn++ {
			if m := members[turn%len(members)]; m.count < m.target {
				has[i] = m
				m.count++
			}
		}
	}
	return has
}
