package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A member of a group joins it, and the leader among them deals the partitions (Join, Sync); heartbeats tell the group that the
// member lives, and the member that the group rebalances (Beat). This is the protocol of groups that have their members deal, as
// in https://cwiki.apache.org/confluence/display/KAFKA/Kafka+Client-side+Assignment+Proposal. kafka-go's ConsumerGroup does all
// that as well, but revokes everything at each rebalance, and keeps what the members agreed on to itself.

// Subscriber is a member of a group as the leader sees it.
type Subscriber struct {
	ID     string
	Topics []string
	Data   []byte // from Joining
}

// Joining is how a member joins.
type Joining struct {
	Member                    // without an ID: as a new one
	Protocol           string // the way of dealing; the same for all members
	Topics             []string
	Data               []byte        // for the leader
	Session, Rebalance time.Duration // until the group gives up on a member that is silent, or does not join
}

// Joined is a generation of a group that a member has joined.
type Joined struct {
	Member
	Members []Subscriber // only for the leader, who has to deal
}

// groupProtocol is the kind of group whose members share partitions among them.
const groupProtocol = "consumer"

// Join joins a group, and returns when all its members have, or when the group has given up on those that have not. A group that
// does not know the member refuses it, and may tell it the ID to join with: it is the answer's, along with MemberIDRequired.
func (c *Client) Join(ctx context.Context, j Joining) (Joined, error) {
	request := kmsg.NewPtrJoinGroupRequest()
	request.Group, request.MemberID, request.ProtocolType = j.Group, j.ID, groupProtocol
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = int32(j.Session.Milliseconds()), int32(j.Rebalance.Milliseconds())
	said := kmsg.ConsumerMemberMetadata{Topics: j.Topics, UserData: j.Data}
	request.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: j.Protocol, Metadata: said.AppendTo(nil)}}
	ctx, cancel := context.WithTimeout(ctx, j.Rebalance+callTimeout)
	defer cancel()
	answer, err := coordinate(ctx, c, j.Group, request, func(a *kmsg.JoinGroupResponse) int16 { return a.ErrorCode })
	out := Joined{Member: j.Member}
	if answer != nil && answer.MemberID != "" {
		out.ID = answer.MemberID
	}
	if errors.Is(err, kafka.InconsistentGroupProtocol) {
		return out, fmt.Errorf("the group has members that do not deal as %s does, of another program or version: %w", j.Protocol, err)
	}
	if err != nil {
		return out, err
	}
	out.Generation = int(answer.Generation)
	for _, m := range answer.Members {
		var said kmsg.ConsumerMemberMetadata
		if err := said.ReadFrom(m.ProtocolMetadata); err != nil {
			return out, fmt.Errorf("the subscription of member %s cannot be read: %w", m.MemberID, err)
		}
		out.Members = append(out.Members, Subscriber{ID: m.MemberID, Topics: said.Topics, Data: said.UserData})
	}
	return out, nil
}

// Sync returns what a member is dealt: partitions by topic. The leader passes what each member is dealt.
func (c *Client) Sync(ctx context.Context, m Member, dealt map[string]map[string][]int) (mine map[string][]int, err error) {
	request := kmsg.NewPtrSyncGroupRequest()
	request.Group, request.MemberID, request.Generation = m.Group, m.ID, int32(m.Generation)
	for id, topics := range dealt {
		var hand kmsg.ConsumerMemberAssignment
		for topic, list := range topics {
			t := kmsg.ConsumerMemberAssignmentTopic{Topic: topic}
			for _, p := range list {
				t.Partitions = append(t.Partitions, int32(p))
			}
			hand.Topics = append(hand.Topics, t)
		}
		request.GroupAssignment = append(request.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
			MemberID: id, MemberAssignment: hand.AppendTo(nil),
		})
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := coordinate(ctx, c, m.Group, request, func(a *kmsg.SyncGroupResponse) int16 { return a.ErrorCode })
	if err != nil || len(answer.MemberAssignment) == 0 {
		return nil, err
	}
	var hand kmsg.ConsumerMemberAssignment
	if err = hand.ReadFrom(answer.MemberAssignment); err != nil {
		return nil, fmt.Errorf("the assignment of the group's leader cannot be read: %w", err)
	}
	mine = map[string][]int{}
	for _, t := range hand.Topics {
		for _, p := range t.Partitions {
			mine[t.Topic] = append(mine[t.Topic], int(p))
		}
	}
	return mine, nil
}

// Beat tells the group that the member lives. An error may be the answer that the group rebalances (see Rebalances), or that it
// has gone on without the member (see Fenced).
func (c *Client) Beat(ctx context.Context, m Member) error {
	request := kmsg.NewPtrHeartbeatRequest()
	request.Group, request.MemberID, request.Generation = m.Group, m.ID, int32(m.Generation)
	_, err := coordinate(ctx, c, m.Group, request, func(a *kmsg.HeartbeatResponse) int16 { return a.ErrorCode })
	return err
}

// coordinate sends a request to the coordinator of a group, which it asks for once, and again after a failure: a heartbeat must not
// depend on another broker. code returns the code of an answer.
func coordinate[R kmsg.Response](ctx context.Context, c *Client, group string, request kmsg.Request, code func(R) int16) (answer R, err error) {
	id, err := c.coordinator(ctx, group)
	if err != nil {
		return answer, err
	}
	if answer, err = exchanged[R](ctx, c, id, request); err == nil {
		err = codeError(code(answer))
	}
	if err != nil && !Fenced(err) && !Rebalances(err) && !errors.Is(err, kafka.MemberIDRequired) {
		c.coordinators.Delete(group)
	}
	return answer, err
}

// coordinator returns the broker that coordinates a group.
func (c *Client) coordinator(ctx context.Context, group string) (id int, err error) {
	if known, ok := c.coordinators.Load(group); ok {
		return known.(int), nil
	}
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.CoordinatorKey = group
	answer, err := exchanged[*kmsg.FindCoordinatorResponse](ctx, c, noLeader, request)
	if err == nil {
		err = codeError(answer.ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("find the coordinator: %w", err)
	}
	c.coordinators.Store(group, int(answer.NodeID))
	return int(answer.NodeID), nil
}
