package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// kafka-go has no DeleteRecords message. These are its versions 0 and 1, which are equal, as described in Kafka's
// protocol guide: https://kafka.apache.org/protocol#The_Messages_DeleteRecords.

func init() { protocol.Register(&deleteRequest{}, &deleteResponse{}) }

// deleteRequest asks to delete all records before an offset from partitions.
type deleteRequest struct {
	Topics    []deleteTopic `kafka:"min=v0,max=v1"`
	TimeoutMs int32         `kafka:"min=v0,max=v1"`
}

type deleteTopic struct {
	Topic      string            `kafka:"min=v0,max=v1"`
	Partitions []deletePartition `kafka:"min=v0,max=v1"`
}

type deletePartition struct {
	Partition int32 `kafka:"min=v0,max=v1"`
	Offset    int64 `kafka:"min=v0,max=v1"`
}

// deleteResponse contains the new first offset of each partition.
type deleteResponse struct {
	ThrottleTimeMs int32          `kafka:"min=v0,max=v1"`
	Topics         []deletedTopic `kafka:"min=v0,max=v1"`
}

type deletedTopic struct {
	Topic      string             `kafka:"min=v0,max=v1"`
	Partitions []deletedPartition `kafka:"min=v0,max=v1"`
}

type deletedPartition struct {
	Partition    int32 `kafka:"min=v0,max=v1"`
	LowWatermark int64 `kafka:"min=v0,max=v1"`
	ErrorCode    int16 `kafka:"min=v0,max=v1"`
}

var _ protocol.BrokerMessage = (*deleteRequest)(nil)

// ApiKey implements protocol.Message.
func (*deleteRequest) ApiKey() protocol.ApiKey { return protocol.DeleteRecords } //nolint:revive // its spelling

// ApiKey implements protocol.Message.
func (*deleteResponse) ApiKey() protocol.ApiKey { return protocol.DeleteRecords } //nolint:revive // its spelling

// Broker returns the leader of the request's partitions, which all have the same one. Without a leader it returns any
// broker, which will answer that it is not the leader.
func (r *deleteRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	first := r.Topics[0]
	return leaderOf(cluster, Partition{first.Topic, int(first.Partitions[0].Partition)}), nil
}

// deleteTimeout bounds one request; the broker waits for its replicas for half of it.
const deleteTimeout = 10 * time.Second

// Deleted is the first offset of a partition after a request, or the error if no record was deleted.
type Deleted struct {
	Low int64
	Err error
}

// DeleteRecords deletes all records before an offset from each partition, with one request per broker. Kafka makes the
// records unreadable at once, and frees their disk space when a whole segment of the log lies before the offset. A
// partition without an answer is left out.
func (c *Client) DeleteRecords(ctx context.Context, before map[Partition]int64) (map[Partition]Deleted, error) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	out := make(map[Partition]Deleted, len(before))
	groups := c.byLeader(ctx, maps.Keys(before), func(at Partition, err error) { out[at] = Deleted{Err: err} })
	var mu sync.Mutex // guards out and failure
	var failure error
	var asking sync.WaitGroup
	for _, group := range groups {
		asking.Go(func() {
			answer, err := c.deleteOf(ctx, group, before)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(out, answer)
			failure = errors.Join(failure, err)
		})
	}
	asking.Wait()
	if failure != nil {
		c.forget()
	}
	if failure != nil && len(out) == 0 {
		return nil, fmt.Errorf("delete records: %w", failure)
	}
	return out, nil
}

// deleteOf sends the request to one broker, the leader of the partitions.
func (c *Client) deleteOf(ctx context.Context, led []Partition, before map[Partition]int64) (map[Partition]Deleted, error) {
	req := &deleteRequest{TimeoutMs: int32((deleteTimeout / 2).Milliseconds())}
	for topic, list := range byTopic(led, func(at Partition) (string, deletePartition) {
		return at.Topic, deletePartition{Partition: int32(at.ID), Offset: before[at]}
	}) {
		req.Topics = append(req.Topics, deleteTopic{topic, list})
	}
	answer, err := ask[*deleteResponse](ctx, c, req)
	if err != nil {
		return nil, err
	}
	out := make(map[Partition]Deleted, len(led))
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			out[Partition{t.Topic, int(p.Partition)}] = Deleted{p.LowWatermark, codeError(p.ErrorCode)}
		}
	}
	return out, nil
}
