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
	members    map[string]claims
	generation int
	owner      map[partition]string
}

func (g *group) of(topics map[string]int) *group {
	g.topics, g.partitions, g.members, g.owner = topics, 0, map[string]claims{}, map[partition]string{}
	for _, n := range topics {
		g.partitions += n
	}
	return g
}

// subscriber is a member as the leader sees it.
func subscriber(id string, topics []string, mine claims) broker.Subscriber {
	return broker.Subscriber{ID: id, Topics: topics, Data: mine.encode()}
}

// deal deals the partitions until each has a holder, and returns how many have another owner than before, and by how many partitions the
// members differ at most, in one topic and in all.
func (g *group) deal(t require) (moved, inTopic, inAll int) {
	var got shares
	var owner map[partition]string
	for round := 0; len(owner) < g.partitions; round++ {
		if round > 2 {
			t.Fatalf("%d of %d partitions are dealt", len(owner), g.partitions)
		}
		got, owner = g.round(t)
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

// round deals once: a member lets go of what is missing in its hand, and no other member is dealt that.
func (g *group) round(t require) (got shares, owner map[partition]string) {
	var members []broker.Subscriber
	held := map[partition]string{}
	for id, mine := range g.members {
		members = append(members, subscriber(id, slices.Collect(maps.Keys(g.topics)), mine))
		for topic, list := range mine.Kept {
			for _, p := range list {
				held[partition{Topic: topic, ID: p}] = id
			}
		}
	}
	g.generation++
	got, err := assignPartitions(members, g.topics)
	if err != nil {
		t.Fatal(err)
	}
	owner = map[partition]string{}
	for id := range g.members {
		for topic, list := range got[id] {
			for _, p := range list {
				at := partition{Topic: topic, ID: p}
				if other, twice := owner[at]; twice {
					t.Fatalf("%s is dealt to %s and to %s", at, other, id)
				}
				if other, is := held[at]; is && other != id {
					t.Fatalf("%s is dealt to %s while %s holds it", at, id, other)
				}
				owner[at] = id
			}
		}
		g.members[id] = claims{Generation: g.generation, Kept: got[id]}
	}
	return got, owner
}

// require is a test, or a check of a property.
type require interface {
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}
