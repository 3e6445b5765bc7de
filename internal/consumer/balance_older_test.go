package consumer

import (
	"context"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
)

// older deals as daemons of earlier versions do, whose membership is kafka-go's.
type older struct{ name string }

func (o older) ProtocolName() string { return o.name }

func (o older) UserData() ([]byte, error) { return nil, nil }

func (o older) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	list, counts := []broker.Subscriber{}, map[string]int{}
	for _, m := range members {
		list = append(list, broker.Subscriber{ID: m.ID, Topics: m.Topics, Data: m.UserData})
	}
	for _, p := range partitions {
		counts[p.Topic]++
	}
	return deal(o.name, list, counts)
}

// TestAGroupWithOlderMembers: members of earlier versions, which let go of everything at a rebalance, are in one group with those
// that do not; whoever leads.
func TestAGroupWithOlderMembers(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(4, r.jobs(), r.opt.LaneTopic)
		c := r.start(newFake())
		r.eventually("joined", c.Joined)
		earlier, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
			ID: r.opt.Group, Brokers: r.brokers, Topics: c.opt.topics(),
			GroupBalancers:    []kafka.GroupBalancer{older{stickyProtocol}, older{evenProtocol}},
			HeartbeatInterval: heartbeat, SessionTimeout: sessionTimeout, RebalanceTimeout: c.opt.RebalanceTimeout,
		})
		if err != nil {
			t.Fatal(err)
		}
		closed := false
		defer func() {
			if !closed {
				_ = earlier.Close()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		has := func(want int) {
			t.Helper()
			for {
				gen, err := earlier.Next(ctx)
				if ctx.Err() != nil {
					t.Fatalf("not %d of the partitions in time: %v", want, err)
				}
				if err != nil { // a rebalance began anew while it joined; it joins again
					continue
				}
				n := 0
				for _, list := range gen.Assignments {
					n += len(list)
				}
				if n == want {
					return
				}
			}
		}
		lanes := func() int { return len(c.Backlog().Lanes) }
		has(4)
		r.eventually("both have half", func() bool { return lanes() == 2 })
		c.stop()
		has(8)
		c = r.start(newFake()) // the other one leads
		has(4)
		r.eventually("both have half again", func() bool { return lanes() == 2 })
		_ = earlier.Close()
		closed = true
		r.eventually("one has all", func() bool { return lanes() == 4 })
	})
}
