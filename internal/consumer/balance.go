package consumer

import (
	"cmp"
	"slices"

	"github.com/segmentio/kafka-go"
)

// evenBalancer assigns all partitions of all topics round-robin, without starting over at the first member for each
// topic. The balancers of kafka-go start over with each topic, so that with many topics of few partitions (timers)
// the first member gets nearly all. Every member must subscribe to the same topics, as the daemons of one group do.
type evenBalancer struct{}

// ProtocolName is what the members of a group agree on; it changes when the result of AssignGroups does.
func (evenBalancer) ProtocolName() string { return "pacer-even-1" }

// UserData is empty.
func (evenBalancer) UserData() ([]byte, error) { return nil, nil }

// AssignGroups assigns partitions to members, both in a fixed order.
func (evenBalancer) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	members, partitions = slices.Clone(members), slices.Clone(partitions)
	slices.SortFunc(members, func(a, b kafka.GroupMember) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(partitions, func(a, b kafka.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	all := kafka.GroupMemberAssignments{}
	for _, m := range members {
		all[m.ID] = map[string][]int{}
	}
	next := 0
	for _, p := range partitions {
		for range members {
			m := members[next%len(members)]
			next++
			if slices.Contains(m.Topics, p.Topic) {
				all[m.ID][p.Topic] = append(all[m.ID][p.Topic], p.ID)
				break
			}
		}
	}
	return all
}
