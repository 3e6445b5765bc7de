package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// group is a group of members whose partitions are dealt again and again.
type group struct {
	partitions []kafka.Partition
	members    map[string]*dealer
	generation int32
	owner      map[partition]string
}

func (g *group) of(topics map[string]int) *group {
	g.partitions, g.members, g.owner = nil, map[string]*dealer{}, map[partition]string{}
	for topic, n := range topics {
		for id := range n {
			g.partitions = append(g.partitions, kafka.Partition{Topic: topic, ID: id})
		}
	}
	return g
}

// deal deals the partitions, and returns how many have another owner than before, and by how many partitions the members
// differ at most, in one topic and in all.
func (g *group) deal(t require) (moved, inTopic, inAll int) {
	var members []kafka.GroupMember
	topics := map[string]bool{}
	for _, p := range g.partitions {
		topics[p.Topic] = true
	}
	for id, d := range g.members {
		said, err := stickyBalancer{d}.UserData()
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, kafka.GroupMember{ID: id, Topics: slices.Collect(maps.Keys(topics)), UserData: said})
	}
	g.generation++
	got, owner := stickyBalancer{new(dealer)}.AssignGroups(members, g.partitions), map[partition]string{}
	for id, d := range g.members {
		gen := &kafka.Generation{ID: g.generation, Assignments: map[string][]kafka.PartitionAssignment{}}
		for topic, list := range got[id] {
			for _, p := range list {
				at := partition{Topic: topic, ID: p}
				if other, twice := owner[at]; twice {
					t.Fatalf("%s is dealt to %s and to %s", at, other, id)
				}
				owner[at] = id
				gen.Assignments[topic] = append(gen.Assignments[topic], kafka.PartitionAssignment{ID: p})
			}
		}
		d.own(gen)
	}
	if len(owner) != len(g.partitions) {
		t.Fatalf("%d of %d partitions are dealt", len(owner), len(g.partitions))
	}
	for at, id := range owner {
		if before, was := g.owner[at]; was && before != id {
			moved++
		}
	}
	g.owner = owner
	spread := func(count func(id string) int) int {
		least, most := len(g.partitions), 0
		for id := range g.members {
			least, most = min(least, count(id)), max(most, count(id))
		}
		return most - least
	}
	for topic := range topics {
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

// Whoever joins and leaves: every partition has one owner, all have the same number of each topic and of all, and few
// partitions move.
func TestPartitionsAreDealt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics := rapid.MapOfN(rapid.StringMatching("[a-e]"), rapid.IntRange(1, 40), 1, 5).Draw(t, "topics")
		g := new(group).of(topics)
		for step := range rapid.IntRange(1, 8).Draw(t, "steps") {
			joined, left := rapid.IntRange(0, 3).Draw(t, "joined"), 0
			for i := range joined {
				g.members[fmt.Sprintf("%d-%d-%d", rapid.IntRange(0, 9).Draw(t, "id"), step, i)] = new(dealer)
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
// the one that joins, and leaves it partitions that are spread.
func TestARollingRestartMovesLittle(t *testing.T) {
	topics := map[string]int{"lanes": 256, "jobs": 24}
	for i := range 20 {
		topics[fmt.Sprint("timer-", i)] = 4
	}
	for _, n := range []int{3, 5, 8} {
		g := new(group).of(topics)
		for i := range n {
			g.members[fmt.Sprintf("first-%02d", i)] = new(dealer)
		}
		g.deal(t)
		all := len(g.partitions)
		g.members["one-more"] = new(dealer)
		if moved, _, _ := g.deal(t); moved > all/(n+1)+3*len(topics) {
			t.Errorf("%d daemons: %d of %d partitions moved at a join", n, moved, all)
		}
		neighbours := 0
		for p := range 255 {
			if g.owner[partition{Topic: "lanes", ID: p}] == g.owner[partition{Topic: "lanes", ID: p + 1}] {
				neighbours++
			}
		}
		if neighbours > 255/(n+1)/3 { // a third of what chance would give
			t.Errorf("%d daemons: %d of 255 neighbours are with the same one", n, neighbours)
		}
		delete(g.members, "one-more")
		g.deal(t)
		total := 0
		for i := range n {
			delete(g.members, fmt.Sprintf("first-%02d", i))
			moved, _, _ := g.deal(t)
			total += moved
			g.members[fmt.Sprintf("second-%02d", i)] = new(dealer)
			moved, _, _ = g.deal(t)
			total += moved
		}
		if total > 3*all {
			t.Errorf("%d daemons: each partition moved %.1f times in a rolling restart", n, float64(total)/float64(all))
		}
		t.Logf("%d daemons: each partition moved %.2f times in a rolling restart; %d neighbours", n, float64(total)/float64(all), neighbours)
	}
}

// What a member says of itself is believed only as far as it can be: of two owners the later one is, and what cannot be read
// or does not exist counts for nothing.
func TestClaimsOfMembers(t *testing.T) {
	one, two := new(dealer), new(dealer)
	mine := func(generation int32, partitions ...int) *kafka.Generation {
		g := &kafka.Generation{ID: generation, Assignments: map[string][]kafka.PartitionAssignment{}}
		for _, p := range partitions {
			g.Assignments["lanes"] = append(g.Assignments["lanes"], kafka.PartitionAssignment{ID: p})
		}
		return g
	}
	one.own(mine(4, 0, 1, 2, 3))
	two.own(mine(7, 2, 3, 99, -1))
	var members []kafka.GroupMember
	for id, d := range map[string]*dealer{"a": one, "b": two} {
		said, _ := stickyBalancer{d}.UserData()
		members = append(members, kafka.GroupMember{ID: id, Topics: []string{"lanes"}, UserData: said})
	}
	members = append(members, kafka.GroupMember{ID: "c", Topics: []string{"other"}, UserData: []byte("{{")})
	var partitions []kafka.Partition
	for id := range 4 {
		partitions = append(partitions, kafka.Partition{Topic: "lanes", ID: id})
	}
	partitions = append(partitions, kafka.Partition{Topic: "other", ID: 0})
	got := stickyBalancer{new(dealer)}.AssignGroups(members, partitions)
	want := kafka.GroupMemberAssignments{"a": {"lanes": {0, 1}}, "b": {"lanes": {2, 3}}, "c": {"other": {0}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAGroupWithOlderMembers: members that do not say what they had are in one group with those that do.
func TestAGroupWithOlderMembers(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(4, r.jobs(), r.opt.LaneTopic)
		c := r.start(newFake())
		r.eventually("joined", c.Joined)
		older, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
			ID: r.opt.Group, Brokers: r.brokers, Topics: c.opt.topics(), GroupBalancers: []kafka.GroupBalancer{evenBalancer{new(dealer)}},
			HeartbeatInterval: heartbeat, SessionTimeout: sessionTimeout, RebalanceTimeout: c.opt.RebalanceTimeout,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = older.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		gen, err := older.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(assigned(gen)); n != 4 {
			t.Errorf("%d partitions of 8", n)
		}
	})
}

// TestPartitionsAddedDuringARebalance: partitions that are added after the leader of the group has dealt them, and before
// the generation begins, are read soon.
func TestPartitionsAddedDuringARebalance(t *testing.T) {
	t.Parallel()
	cluster := inProcess(t)
	r := newRig(t, cluster.ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	dealt, added := make(chan struct{}), make(chan struct{})
	cluster.ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.DropControl()
		close(dealt)
		cluster.SleepControl(func() { <-added })
		return nil, nil, false
	})
	c := r.start(newFake(), func(o *Options) { o.partitionsWatched = 200 * time.Millisecond })
	<-dealt
	answer, err := r.client.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: r.jobs(), Count: 3}},
	})
	if err == nil {
		err = answer.Errors[r.jobs()]
	}
	if err != nil {
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
	if lines := r.logs.lines("level=INFO", "other partitions"); len(lines) != 1 {
		t.Errorf("%d lines: %s", len(lines), r.logs)
	}
}

// TestAFailedJoinLeavesNoMember: the member whose join was not answered is removed, since it begins anew as another one; the
// group would wait for the first one until its session times out.
func TestAFailedJoinLeavesNoMember(t *testing.T) {
	t.Parallel()
	cluster := inProcess(t)
	r := newRig(t, cluster.ListenAddrs())
	r.create(2, r.jobs(), r.opt.LaneTopic)
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
	cluster.ControlKey(int16(kmsg.LeaveGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		leaving := req.(*kmsg.LeaveGroupRequest)
		left = left || leaving.MemberID == member ||
			slices.ContainsFunc(leaving.Members, func(m kmsg.LeaveGroupRequestMember) bool { return m.MemberID == member })
		return nil, nil, false
	})
	second := r.start(newFake())
	r.eventually("both are members", func() bool { return first.Joined() && second.Joined() && len(r.logs.lines("ingress=1")) >= 2 })
	mu.Lock()
	defer mu.Unlock()
	if !failed || !left {
		t.Errorf("the join failed: %t; the member was removed: %t", failed, left)
	}
}
