package consumer

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
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
func (g *group) deal(t rapid.TB) (moved, inTopic, inAll int) {
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
func (g *group) round(t rapid.TB) (got shares, owner map[partition]string) {
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

// Whoever joins and leaves: every partition has one owner, all have the same number of each topic and of all, and few
// partitions move.
func TestPartitionsAreDealt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics := rapid.MapOfN(rapid.StringMatching("[a-e]"), rapid.IntRange(1, 40), 1, 5).Draw(t, "topics")
		g := new(group).of(topics)
		for step := range rapid.IntRange(1, 8).Draw(t, "steps") {
			joined, left := rapid.IntRange(0, 3).Draw(t, "joined"), 0
			for i := range joined {
				g.members[fmt.Sprintf("%d-%d-%d", rapid.IntRange(0, 9).Draw(t, "id"), step, i)] = claims{}
			}
			for _, id := range slices.Sorted(maps.Keys(g.members)) {
				if len(g.members) > 1 && rapid.IntRange(0, 5).Draw(t, "leaves") == 0 {
					delete(g.members, id)
					left++
				}
			}
			if len(g.members) == 0 {
				continue
			}
			moved, inTopic, inAll := g.deal(t)
			if inTopic > 1 || inAll > 1 {
				t.Fatalf("members differ by %d of a topic, by %d of all", inTopic, inAll)
			}
			if joined == 0 && left == 0 && moved > 0 {
				t.Fatalf("%d partitions moved for nothing", moved)
			}
		}
	})
}

// A rolling restart of n daemons moves each partition about twice, not n times; a join moves little more than the share of
// the one that joins.
func TestARollingRestartMovesLittle(t *testing.T) {
	topics := map[string]int{"lanes": 256, "jobs": 24}
	for i := range 20 {
		topics[fmt.Sprint("timer-", i)] = 4
	}
	for _, n := range []int{3, 5, 8} {
		g := new(group).of(topics)
		for i := range n {
			g.members[fmt.Sprintf("first-%02d", i)] = claims{}
		}
		g.deal(t)
		all := g.partitions
		g.members["one-more"] = claims{}
		if moved, _, _ := g.deal(t); moved > all/(n+1)+3*len(topics) {
			t.Errorf("%d daemons: %d of %d partitions moved at a join", n, moved, all)
		}
		delete(g.members, "one-more")
		g.deal(t)
		total := 0
		for i := range n {
			delete(g.members, fmt.Sprintf("first-%02d", i))
			moved, _, _ := g.deal(t)
			total += moved
			g.members[fmt.Sprintf("second-%02d", i)] = claims{}
			moved, _, _ = g.deal(t)
			total += moved
		}
		if total > 3*all {
			t.Errorf("%d daemons: each partition moved %.1f times in a rolling restart", n, float64(total)/float64(all))
		}
		t.Logf("%d daemons: each partition moved %.2f times in a rolling restart", n, float64(total)/float64(all))
	}
}

// TestTheLanesOfACampaignAreWithMany: nearly all campaigns with as many lanes as four for each daemon have some at all daemons, after any
// joins and leaves.
func TestTheLanesOfACampaignAreWithMany(t *testing.T) {
	const lanes, campaigns = 256, 500
	for n := 2; n <= 4; n++ {
		g := new(group).of(map[string]int{"lanes": lanes, "jobs": 12})
		for i := range n {
			g.members[fmt.Sprintf("%d-first", i)] = claims{}
		}
		g.deal(t)
		for step := range 12 {
			g.members[fmt.Sprintf("%d-%d", rand.IntN(10), step)] = claims{}
			g.deal(t)
			delete(g.members, slices.Sorted(maps.Keys(g.members))[rand.IntN(n+1)])
			g.deal(t)
		}
		lack := 0
		for c := range campaigns {
			order, has := delivery.OrderOfLanes(fmt.Sprint("c", c), lanes), map[string]bool{}
			for k := range 16 {
				has[g.owner[partition{Topic: "lanes", ID: order.Lane(k)}]] = true
			}
			lack += n - len(has)
		}
		if lack > campaigns/5 {
			t.Errorf("%d daemons: %d times, one of them has no lane of a campaign", n, lack)
		}
	}
}

// TestWhatMembersAreDealt: claims of members count only as far as they can be true, and what one member holds is not dealt to another.
func TestWhatMembersAreDealt(t *testing.T) {
	lanes := []string{"lanes"}
	of := func(ids ...int) map[string][]int { return map[string][]int{"lanes": ids} }
	four := map[string]int{"lanes": 4}
	for name, c := range map[string]struct {
		members []broker.Subscriber
		counts  map[string]int
		want    shares
	}{
		"of two owners the later one counts, and partitions that do not exist do not": {
			[]broker.Subscriber{
				subscriber("a", lanes, claims{Generation: 4, Kept: of(0, 1, 2, 3)}), subscriber("b", lanes, claims{Generation: 7, Kept: of(2, 3, 99, -1)}),
				subscriber("c", []string{"other"}, claims{}),
			},
			map[string]int{"lanes": 4, "other": 1}, shares{"a": of(0, 1), "b": of(2, 3), "c": {"other": {0}}},
		},
		"what moves is held, and one member has missed that it lost what it had": {
			[]broker.Subscriber{
				subscriber("a", lanes, claims{Generation: 5, Kept: of(0, 1, 2, 3)}), subscriber("b", lanes, claims{}),
				subscriber("c", lanes, claims{Generation: 3, Kept: of(3)}),
			},
			four, shares{"a": of(2, 3), "b": {}, "c": {}},
		},
		"one of the two that move has been let go of": {
			[]broker.Subscriber{
				subscriber("a", lanes, claims{Generation: 6, Kept: of(2, 3), Leaving: of(0)}), subscriber("b", lanes, claims{}),
				subscriber("c", lanes, claims{Generation: 6}),
			},
			four, shares{"a": of(2, 3), "b": {}, "c": of(1)},
		},
		"both have been let go of": {
			[]broker.Subscriber{
				subscriber("a", lanes, claims{Generation: 7, Kept: of(2, 3)}), subscriber("b", lanes, claims{}), subscriber("c", lanes, claims{Generation: 6}),
			},
			four, shares{"a": of(2, 3), "b": of(0), "c": of(1)},
		},
		"a topic that the brokers do not know stays": {
			[]broker.Subscriber{
				subscriber("a", []string{"jobs", "lanes"}, claims{Generation: 5, Kept: map[string][]int{"lanes": {0, 2}, "jobs": {0}}}),
			},
			map[string]int{"jobs": 2}, shares{"a": {"lanes": {0, 2}, "jobs": {0, 1}}},
		},
	} {
		if got, err := assignPartitions(c.members, c.counts); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}

// TestClaimsThatCannotBeRead: what such a member holds is not known, so nothing is dealt, and the error names it.
func TestClaimsThatCannotBeRead(t *testing.T) {
	for name, data := range map[string][]byte{"none": nil, "damaged": {'{'}} {
		got, err := assignPartitions([]broker.Subscriber{
			subscriber("a", []string{"lanes"}, claims{}), {ID: "other", Topics: []string{"lanes"}, Data: data},
		}, map[string]int{"lanes": 2})
		if err == nil || !strings.Contains(err.Error(), "member other") || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestPartitionsAddedDuringARebalance: partitions that are added after the leader of the group has dealt them, and before
// the generation begins, are read soon.
func TestPartitionsAddedDuringARebalance(t *testing.T) {
	r := inProcess(t, 1, 1)
	cluster := r.cluster
	dealt, added := make(chan struct{}), make(chan struct{})
	cluster.ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.DropControl()
		close(dealt)
		cluster.SleepControl(func() { <-added })
		return nil, nil, false
	})
	c := r.start(newFake(), func(o *Options) { o.topicsWatched = 200 * time.Millisecond })
	<-dealt
	if err := r.admin.AddPartitions(t.Context(), r.jobs(), 3); err != nil {
		t.Fatal(err)
	}
	close(added)
	r.eventually("joined", c.Joined)
	r.eventually("the partitions are known", func() bool {
		m, err := r.client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{r.jobs()}})
		return err == nil && len(m.Topics[0].Partitions) == 3
	})
	for p := range 3 {
		r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint("p", p), 0, 10))
	}
	r.eventually("all partitions are read", func() bool { return c.count() == 30 })
	r.said(1, "level=INFO", "other partitions")
}

// TestAFailedJoinIsRepeated: a member whose join was not answered joins again as the same one, with what it holds: the group would
// wait for it until its session times out, if it came back as another one.
func TestAFailedJoinIsRepeated(t *testing.T) {
	r := inProcess(t, 2, 1)
	cluster := r.cluster
	first := r.start(newFake())
	r.eventually("the first joins", first.Joined)
	member := r.memberOf()
	var mu sync.Mutex
	failed, left := false, false
	cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if failed || req.(*kmsg.JoinGroupRequest).MemberID != member {
			return nil, nil, false
		}
		failed = true
		return nil, errors.New("the connection is lost"), true
	})
	cluster.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		left = true
		return nil, nil, false
	})
	second := r.start(newFake())
	r.eventually("both are members", func() bool { return first.Joined() && second.Joined() && len(r.logs.lines("ingress=1")) >= 2 })
	mu.Lock()
	defer mu.Unlock()
	if !failed || left {
		t.Errorf("the join failed: %t; a member was removed: %t", failed, left)
	}
}
