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

// Claims of members count only as far as they can be true. Of two owners the later one counts; partitions that do not exist do not.
func TestClaimsOfMembers(t *testing.T) {
	of := func(generation int, ids ...int) claims {
		return claims{Generation: generation, Kept: map[string][]int{"lanes": ids}}
	}
	lanes := []string{"lanes"}
	got, err := assignPartitions([]broker.Subscriber{
		subscriber("a", lanes, of(4, 0, 1, 2, 3)), subscriber("b", lanes, of(7, 2, 3, 99, -1)), subscriber("c", []string{"other"}, claims{}),
	}, map[string]int{"lanes": 4, "other": 1})
	want := shares{"a": {"lanes": {0, 1}}, "b": {"lanes": {2, 3}}, "c": {"other": {0}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
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

// TestWhatIsHeldIsNotDealt: a partition that moves is not dealt as long as its owner holds it.
func TestWhatIsHeldIsNotDealt(t *testing.T) {
	members := map[string]claims{
		"a": {Generation: 5, Kept: map[string][]int{"lanes": {0, 1, 2, 3}}},
		"b": {},
		"c": {Generation: 3, Kept: map[string][]int{"lanes": {3}}}, // it has missed that it lost it
	}
	dealt := func() shares {
		var list []broker.Subscriber
		for id, mine := range members {
			list = append(list, subscriber(id, []string{"lanes"}, mine))
		}
		got, err := assignPartitions(list, map[string]int{"lanes": 4})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := dealt()
	kept := got["a"]["lanes"]
	if len(kept) != 2 || len(got["b"]["lanes"]) != 0 || len(got["c"]["lanes"]) != 0 {
		t.Fatalf("%v", got)
	}
	// One of the two has been let go of: the other stays where it is held, and what is kept does not change.
	var leaving []int
	for p := range 4 {
		if !slices.Contains(kept, p) {
			leaving = []int{p}
		}
	}
	members["a"] = claims{Generation: 6, Kept: map[string][]int{"lanes": kept}, Leaving: map[string][]int{"lanes": leaving}}
	members["c"] = claims{Generation: 6}
	if got = dealt(); !slices.Equal(got["a"]["lanes"], kept) || len(got["b"]["lanes"])+len(got["c"]["lanes"]) != 1 {
		t.Errorf("%v", got)
	}
	members["a"] = claims{Generation: 7, Kept: map[string][]int{"lanes": kept}}
	if got = dealt(); len(got["a"]["lanes"]) != 2 || len(got["b"]["lanes"]) != 1 || len(got["c"]["lanes"]) != 1 {
		t.Errorf("%v", got)
	}
}

// TestATopicThatIsNotThereStays: while a topic is not known to the brokers, those who had its partitions keep them.
func TestATopicThatIsNotThereStays(t *testing.T) {
	topics := []string{"jobs", "lanes"}
	mine := claims{Generation: 5, Kept: map[string][]int{"lanes": {0, 2}, "jobs": {0}}}
	got, err := assignPartitions([]broker.Subscriber{subscriber("a", topics, mine)}, map[string]int{"jobs": 2})
	if want := (shares{"a": {"lanes": {0, 2}, "jobs": {0, 1}}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
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

// TestAFailedJoinIsRepeated: a member whose join was not answered joins again as the same one, with what it holds: the group would
// wait for it until its session times out, if it came back as another one.
func TestAFailedJoinIsRepeated(t *testing.T) {
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
