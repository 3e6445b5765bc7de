package broker

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// TestAGroup: a member joins, deals, is known as long as it says so, and learns that another one joins and that it is forgotten.
func TestAGroup(t *testing.T) {
	for name, brokers := range map[string]func(t *testing.T) []string{
		"real":       func(t *testing.T) []string { return testservices.Kafka(t) },
		"in process": func(t *testing.T) []string { return kafkatest.Cluster(t).ListenAddrs() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, Options{Brokers: brokers(t)})
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
}
