package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go/protocol"
)

// kafka-go has no OffsetForLeaderEpoch message. These are its versions 2 and 3, as described in Kafka's protocol guide:
// https://kafka.apache.org/protocol#The_Messages_OffsetForLeaderEpoch.

func init() { protocol.Register(&epochRequest{}, &epochResponse{}) }

type epochRequest struct {
	ReplicaID int32        `kafka:"min=v3,max=v3"`
	Topics    []epochTopic `kafka:"min=v2,max=v3"`
}

type epochTopic struct {
	Topic      string           `kafka:"min=v2,max=v3"`
	Partitions []epochPartition `kafka:"min=v2,max=v3"`
}

type epochPartition struct {
	Partition    int32 `kafka:"min=v2,max=v3"`
	CurrentEpoch int32 `kafka:"min=v2,max=v3"`
	Epoch        int32 `kafka:"min=v2,max=v3"`
}

type epochResponse struct {
	ThrottleTimeMs int32           `kafka:"min=v2,max=v3"`
	Topics         []epochEndTopic `kafka:"min=v2,max=v3"`
}

type epochEndTopic struct {
	Topic      string     `kafka:"min=v2,max=v3"`
	Partitions []epochEnd `kafka:"min=v2,max=v3"`
}

type epochEnd struct {
	ErrorCode int16 `kafka:"min=v2,max=v3"`
	Partition int32 `kafka:"min=v2,max=v3"`
	Epoch     int32 `kafka:"min=v2,max=v3"`
	EndOffset int64 `kafka:"min=v2,max=v3"`
}

var _ protocol.BrokerMessage = (*epochRequest)(nil)

// ApiKey implements protocol.Message.
func (*epochRequest) ApiKey() protocol.ApiKey { return protocol.OffsetForLeaderEpoch } //nolint:revive // its spelling

// ApiKey implements protocol.Message.
func (*epochResponse) ApiKey() protocol.ApiKey { return protocol.OffsetForLeaderEpoch } //nolint:revive // its spelling

// Broker returns the leader of the partition.
func (r *epochRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	first := r.Topics[0]
	return leaderOf(cluster, Partition{first.Topic, int(first.Partitions[0].Partition)}), nil
}

// Epoch identifies the leadership of a partition in which a record was written: one more than the number that Kafka uses, so
// that the zero value stands for an unknown one.
type Epoch int32

// ErrNewEpoch ends a fetch whose first record was written in another epoch than FetchRequest.After.
var ErrNewEpoch = errors.New("the records are of another leader")

// EpochEnd returns the offset at which an epoch, or else the last one before it, ends in the log of the present leader. A
// record of that epoch at this offset or a later one is not in the log. ok is false if the leader does not know.
func (c *Client) EpochEnd(ctx context.Context, at Partition, epoch Epoch) (end int64, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	const consumer = -1
	answer, err := ask[*epochResponse](ctx, c, &epochRequest{ReplicaID: consumer, Topics: []epochTopic{{
		Topic: at.Topic, Partitions: []epochPartition{{Partition: int32(at.ID), CurrentEpoch: -1, Epoch: int32(epoch) - 1}},
	}}})
	if err == nil && (len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1) {
		err = errors.New("the answer is for another partition")
	}
	if err == nil {
		end = answer.Topics[0].Partitions[0].EndOffset
		err = codeError(answer.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the end of an epoch of %s: %w", at, err)
	}
	return end, end >= 0, nil
}
