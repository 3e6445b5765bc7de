package consumer

import (
	"maps"
	"slices"

	"github.com/pacer/pacer/internal/broker"
)

// group is a group of members whose partitions are dealt again and again.
type group struct {
	topics     map[string]int
	partitions int
	members    map[string]ownership
	generation int
	owner      map[partition]string
}

func (g *group) of(topics map[string]int) *group {
	g.topics, g.partitions, g.members, g.owner = topics, 0, map[string]ownership{}, map[partition]string{}
	for _, n := range topics {
		g.partitions += n
	}
	return g
}

// subscriber is a member as the leader sees it.
func subscriber(id string, topics []string, mine ownership, protocol string) broker.Subscriber {
	for _, p := range offers(mine) {
		if p.Name == protocol {
			return broker.Subscriber{ID: id, Topics: topics, Data: p.Data}
		}
	}
	panic("no such protocol")
}

// deal deals the partitions, and returns how many have another owner than before, and by how many partitions the members
// differ at most, in one topic and in all.
func (g *group) deal(t require) (moved, inTopic, inAll int) {
	var members []broker.Subscriber
	for id, mine := range g.members {
		members = append(members, subscriber(id, slices.Collect(maps.Keys(g.topics)), mine, stickyProtocol))
	}
	g.generation++
	got, owner := deal(stickyProtocol, members, g.topics), map[partition]string{}
	for id := range g.members {
		var mine []partition
		for topic, list := range got[id] {
			for _, p := range list {
				at := partition{Topic: topic, ID: p}
				if other, twice := owner[at]; twice {
					t.Fatalf("%s is dealt to %s and to %s", at, other, id)
				}
				owner[at] = id
				mine = append(mine, at)
			}
		}
		g.members[id] = owned(g.generation, mine, false)
	}
	if len(owner) != g.partitions {
		t.Fatalf("%d of %d partitions are dealt", len(owner), g.partitions)
	}
	for at, id := range owner {
		if before, was := g.owner[at]; was && before != id {
			moved++
		}
	}
	g.owner = owner
	spread := func(count func(id string) int) int {
		least, most := g.partitions, 0
		for id := range g.members {
			least, most = min(least, count(id)), max(most, count(id))
		}
		return most - least
	}
	for topic := range g.topics {
		inTopic = max(inTopic, spread(func(id string) int { return len(got[id][topic]) }))
	}
	inAll = spread(func(id string) (n int) {
		for _, list := range got[id] {
			n += len(list)
		}
		return n
	})
	return moved, inTopic, inAll
}

// require is a test, or a check of a property.
type require interface {
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}
