package broker

import (
	"cmp"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// TestAGroup: a member joins, deals, is known as long as it says so, and learns that another one joins and that it is forgotten.
func TestAGroup(t *testing.T) {
	onBrokers(t, func(t *testing.T, c *Client) {
		group := testservices.Unique("group")
		joining := func(m Member) Joining {
			return Joining{
				Member: m, Topics: []string{"jobs", "lanes"}, Session: 10 * time.Second, Rebalance: 8 * time.Second,
				Protocol: "best", Data: []byte("mine"),
			}
		}
		join := func(m Member) Joined {
			t.Helper()
			for {
				out, err := c.Join(t.Context(), joining(m))
				switch {
				case err == nil:
					return out
				case NamesMember(err):
					m.ID = out.ID
				case Busy(err): // the coordinator of a new group
					time.Sleep(20 * time.Millisecond)
				default:
					t.Error(err)
					return out
				}
			}
		}
		first := join(Member{Group: group})
		want := []Subscriber{{ID: first.ID, Topics: []string{"jobs", "lanes"}, Data: []byte("mine")}}
		if !reflect.DeepEqual(first.Members, want) {
			t.Fatalf("%+v", first)
		}
		hand := map[string][]int{"jobs": {0, 2}, "lanes": {1}}
		got, err := c.Sync(t.Context(), first.Member, map[string]map[string][]int{first.ID: hand})
		if err != nil || !reflect.DeepEqual(got, hand) {
			t.Errorf("dealt %v, error %v", got, err)
		}
		if err = c.Beat(t.Context(), first.Member); err != nil {
			t.Error(err)
		}
		foreign := joining(Member{Group: group})
		foreign.Protocol = "another"
		out, err := c.Join(t.Context(), foreign)
		if NamesMember(err) {
			foreign.ID = out.ID
			_, err = c.Join(t.Context(), foreign)
		}
		if err == nil || !strings.Contains(err.Error(), "do not deal as another does") {
			t.Errorf("a member of another protocol: %v", err)
		}
		second := make(chan Joined, 1)
		go func() { second <- join(Member{Group: group}) }()
		for err = nil; !Rebalances(err); err = c.Beat(t.Context(), first.Member) {
			if err != nil {
				t.Fatal(err)
			}
		}
		again := join(first.Member)
		other := <-second
		if again.ID != first.ID || again.Generation <= first.Generation || other.Generation != again.Generation {
			t.Errorf("%+v, and then %+v with %+v", first.Member, again.Member, other.Member)
		}
		if err = c.Beat(t.Context(), first.Member); !Outdated(err) {
			t.Errorf("a heartbeat of the generation before: %v", err)
		}
		if err = c.Leave(t.Context(), again.Member); err != nil {
			t.Error(err)
		}
		if err = c.Beat(t.Context(), again.Member); !Fenced(err) || Outdated(err) {
			t.Errorf("a heartbeat of a member that has left: %v", err)
		}
		if err = c.Leave(t.Context(), other.Member); err != nil {
			t.Error(err)
		}
	})
}

// TestACommitIsOneRequest: the coordinator is asked for once, and once more when it has moved.
func TestACommitIsOneRequest(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Cluster(t)
	var moved atomic.Int32
	asked := counting(cluster, kmsg.FindCoordinator)
	c, group, at := dial(t, Options{Brokers: cluster.ListenAddrs()}), testservices.Unique("group"), Partition{"jobs", 0}
	if _, err := c.CreateTopics(t.Context(), []Topic{{Name: at.Topic, Partitions: 1, Replicas: 1}}, nil); err != nil {
		t.Fatal(err)
	}
	commit := func(offset int64) error {
		outcomes, err := c.Commit(t.Context(), Member{Group: group, Generation: -1}, map[Partition]Commit{at: {Offset: offset, Metadata: "m"}})
		return cmp.Or(err, outcomes[at])
	}
	for offset := range int64(10) {
		if err := commit(offset); err != nil {
			t.Fatal(err)
		}
	}
	found, err := c.Committed(t.Context(), group, []Partition{at})
	if err != nil || found[at] != (Commit{Offset: 9, Metadata: "m"}) || asked.Load() != 1 {
		t.Errorf("committed is %v, error %v, and the coordinator was asked for %d times", found, err, asked.Load())
	}
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(request kmsg.Request) (kmsg.Response, error, bool) {
		moved.Add(1)
		answer := request.ResponseKind().(*kmsg.OffsetCommitResponse)
		answer.Topics = []kmsg.OffsetCommitResponseTopic{{Topic: at.Topic, Partitions: []kmsg.OffsetCommitResponseTopicPartition{
			{ErrorCode: int16(kafka.NotCoordinatorForGroup)},
		}}}
		return answer, nil, true
	})
	if err := commit(10); !errors.Is(err, kafka.NotCoordinatorForGroup) {
		t.Errorf("error %v of a broker that does not coordinate", err)
	}
	if err := commit(10); err != nil || asked.Load() != 2 || moved.Load() != 1 {
		t.Errorf("error %v; the coordinator was asked for %d times, and a commit was refused %d times", err, asked.Load(), moved.Load())
	}
}
