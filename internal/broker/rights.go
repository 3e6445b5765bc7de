package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/retry"
)

// Operation is one that ACLs allow; its number is that of the protocol.
type Operation int8

// The operations that pacer needs.
const (
	OpRead            Operation = 3
	OpWrite           Operation = 4
	OpDelete          Operation = 6
	OpDescribeConfigs Operation = 10
)

// String returns the name that Kafka's tools use.
func (o Operation) String() string { return kafka.ACLOperationType(o).String() }

// LackingOnTopics returns the operations on topics that the user of the client needs and may not do. Topics that do not
// exist are left out, and all of a cluster that does not tell.
func (c *Client) LackingOnTopics(ctx context.Context, need map[string][]Operation) (map[string][]Operation, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.IncludeTopicAuthorizedOperations = true
	answer, err := c.metadata(ctx, noLeader, request, slices.Collect(maps.Keys(need)))
	if err != nil {
		return nil, fmt.Errorf("read the rights on topics: %w", err)
	}
	missing := map[string][]Operation{}
	for _, t := range answer.Topics {
		denied := kafka.Error(t.ErrorCode) == kafka.TopicAuthorizationFailed
		if t.Topic == nil || t.ErrorCode != 0 && !denied {
			continue
		}
		if denied {
			t.AuthorizedOperations = 0
		}
		if without := lacking(t.AuthorizedOperations, need[*t.Topic]); len(without) > 0 {
			missing[*t.Topic] = without
		}
	}
	return missing, nil
}

// LackingOnGroup is LackingOnTopics for a group.
func (c *Client) LackingOnGroup(ctx context.Context, group string, need ...Operation) ([]Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		is, err := c.describeGroup(ctx, group)
		switch {
		case err == nil:
			return lacking(is.AuthorizedOperations, need), nil
		case errors.Is(err, kafka.GroupAuthorizationFailed):
			return need, nil
		case !Busy(err) || retry.Sleep(ctx, 50*time.Millisecond) != nil: // in a new cluster, no broker keeps groups yet
			return nil, fmt.Errorf("read the rights on group %s: %w", group, err)
		}
	}
}

// lacking returns the operations without a bit in what a broker allows. One that does not tell sends the smallest number.
func lacking(allowed int32, need []Operation) (without []Operation) {
	for _, operation := range need {
		if allowed != math.MinInt32 && allowed&(1<<operation) == 0 {
			without = append(without, operation)
		}
	}
	return without
}
