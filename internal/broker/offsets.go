package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/retry"
)

// Special values of the parameter which in Offsets; other values are times in milliseconds of Unix time.
const (
	Earliest int64 = kafka.FirstOffset // the first record of the log
	Latest   int64 = kafka.LastOffset  // the end: one after the last record
)

// Offsets returns an offset for each of the partitions: Earliest, Latest, or that of the first record written at a
// time (Unix milliseconds) or later. Partitions without such a record are left out, and so are those that did not
// answer; the error is that of the first of the latter.
func (c *Client) Offsets(ctx context.Context, which int64, partitions ...Partition) (map[Partition]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.kafka.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: byTopic(partitions, func(at Partition) (string, kafka.OffsetRequest) {
			return at.Topic, kafka.OffsetRequest{Partition: at.ID, Timestamp: which}
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", unnamed(err))
	}
	found := make(map[Partition]int64, len(partitions))
	answered := 0
	for topic, list := range answer.Topics {
		for _, p := range list {
			at := Partition{topic, p.Partition}
			answered++
			switch {
			case p.Error != nil:
				if err == nil {
					err = fmt.Errorf("list offsets of %s: %w", at, p.Error)
				}
			case which == Earliest:
				found[at] = p.FirstOffset
			case which == Latest:
				found[at] = p.LastOffset
			default:
				for offset := range p.Offsets {
					if offset >= 0 { // -1: there is none
						found[at] = offset
					}
				}
			}
		}
	}
	if err == nil && answered < len(partitions) {
		err = errors.New("list offsets: not every partition was answered for")
	}
	return found, err
}

// Bounds returns the first offset of a partition and the one after its last.
func (c *Client) Bounds(ctx context.Context, at Partition) (first, end int64, err error) {
	begins, err := c.Offsets(ctx, Earliest, at)
	if err != nil {
		return 0, 0, err
	}
	ends, err := c.Offsets(ctx, Latest, at)
	return begins[at], ends[at], err
}

// edge is Offsets for one partition that may have no leader yet, as in a new topic: it retries in that case.
func (c *Client) edge(ctx context.Context, at Partition, which int64) (found map[Partition]int64, err error) {
	for attempt := 1; ; attempt++ {
		found, err = c.Offsets(ctx, which, at)
		code, _ := errors.AsType[kafka.Error](err)
		if err == nil || attempt == scanAttempts || !code.Temporary() {
			return found, err
		}
		if err := retry.Sleep(ctx, scanBackoff.Delay(attempt)); err != nil {
			return nil, err
		}
	}
}

// Commit is the committed position of a group in a partition.
type Commit struct {
	Offset   int64
	Metadata string
	None     bool // the group has committed nothing
}

// Committed returns what the group has committed. Partitions that have no answer are left out: an offset that cannot be read for the
// moment must not be taken for a missing one. The error is that of the first of them. There are no commits if no coordinator answers.
func (c *Client) Committed(ctx context.Context, group string, partitions []Partition) (map[Partition]Commit, error) {
	commits := make(map[Partition]Commit, len(partitions))
	if len(partitions) == 0 {
		return commits, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = group
	for topic, list := range byTopic(partitions, func(at Partition) (string, int32) { return at.Topic, int32(at.ID) }) {
		request.Topics = append(request.Topics, kmsg.OffsetFetchRequestTopic{Topic: topic, Partitions: list})
	}
	answer, err := coordinate(ctx, c, group, request, func(a *kmsg.OffsetFetchResponse) int16 { return a.ErrorCode })
	if errors.Is(err, kafka.GroupIdNotFound) {
		for _, at := range partitions {
			commits[at] = Commit{None: true}
		}
		return commits, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", group, err)
	}
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			at := Partition{topic.Topic, int(p.Partition)}
			switch {
			case p.ErrorCode != 0:
				err = cmp.Or(err, fmt.Errorf("fetch the offset of %s: %w", at, codeError(p.ErrorCode)))
			case p.Offset < 0:
				commits[at] = Commit{None: true}
			default:
				commits[at] = Commit{Offset: p.Offset}
				if p.Metadata != nil {
					commits[at] = Commit{Offset: p.Offset, Metadata: *p.Metadata}
				}
			}
		}
	}
	if err == nil && len(commits) < len(partitions) {
		err = errUnanswered
	}
	return commits, err
}

var errUnanswered = errors.New("the coordinator has not answered for every partition")

// Member is the identity that the coordinator fences commits by.
type Member struct {
	Group      string
	ID         string
	Generation int
}

// Commit commits for a member of a group, and returns the outcome of each partition.
func (c *Client) Commit(ctx context.Context, m Member, commits map[Partition]Commit) (map[Partition]error, error) {
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.MemberID, request.Generation = m.Group, m.ID, int32(m.Generation)
	for topic, list := range byTopic(slices.Collect(maps.Keys(commits)), func(at Partition) (string, kmsg.OffsetCommitRequestTopicPartition) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = int32(at.ID), commits[at].Offset, new(commits[at].Metadata)
		return at.Topic, p
	}) {
		request.Topics = append(request.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, Partitions: list})
	}
	outcomes := make(map[Partition]error, len(commits))
	_, err := coordinate(ctx, c, m.Group, request, func(a *kmsg.OffsetCommitResponse) (code int16) {
		for _, topic := range a.Topics {
			for _, p := range topic.Partitions {
				outcomes[Partition{topic.Topic, int(p.Partition)}] = codeError(p.ErrorCode)
				if kafka.Error(p.ErrorCode) == kafka.NotCoordinatorForGroup {
					code = p.ErrorCode
				}
			}
		}
		return code
	})
	if err == nil && len(outcomes) < len(commits) {
		err = errUnanswered
	}
	if err != nil {
		return nil, fmt.Errorf("commit offsets: %w", err)
	}
	return outcomes, nil
}

// Members returns the number of members of a group once it is stable; stable is false otherwise.
func (c *Client) Members(ctx context.Context, group string) (members int, stable bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	is, err := c.describeGroup(ctx, group)
	if err != nil && !errors.Is(err, kafka.GroupIdNotFound) {
		return 0, false, fmt.Errorf("describe group %s: %w", group, err)
	}
	return len(is.Members), is.State == "Stable", nil
}

func (c *Client) describeGroup(ctx context.Context, group string) (kmsg.DescribeGroupsResponseGroup, error) {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups, request.IncludeAuthorizedOperations = []string{group}, true
	is := kmsg.NewDescribeGroupsResponseGroup()
	_, err := coordinate(ctx, c, group, request, func(a *kmsg.DescribeGroupsResponse) int16 {
		if len(a.Groups) == 1 {
			is = a.Groups[0]
		}
		return is.ErrorCode
	})
	return is, err
}

// Leave removes a member from its group. It is no error if the group does not know it.
func (c *Client) Leave(ctx context.Context, m Member) error {
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group, request.MemberID = m.Group, m.ID
	_, err := coordinate(ctx, c, m.Group, request, func(a *kmsg.LeaveGroupResponse) int16 { return a.ErrorCode })
	if err != nil && !errors.Is(err, kafka.UnknownMemberId) {
		return fmt.Errorf("leave group %s: %w", m.Group, err)
	}
	return nil
}
