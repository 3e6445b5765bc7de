package requeue

import (
	"errors"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// DeleteRecords is not among the messages that kafka-go knows. These are versions 0 and 1 of it (they are alike), as
// Kafka's protocol guide has them: https://kafka.apache.org/protocol#The_Messages_DeleteRecords. The transport sends one
// request to each broker, with all partitions that it leads.

func init() { protocol.Register(&deleteRequest{}, &deleteResponse{}) }

// deleteRequest asks that everything before an offset be removed from partitions.
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

// deleteResponse says where each partition begins now.
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

var (
	_ protocol.BrokerMessage = (*deleteRequest)(nil)
	_ protocol.Splitter      = (*deleteRequest)(nil)
	_ protocol.Merger        = (*deleteResponse)(nil)
)

// ApiKey implements protocol.Message.
func (*deleteRequest) ApiKey() protocol.ApiKey { return protocol.DeleteRecords } //nolint:revive // its spelling

// ApiKey implements protocol.Message.
func (*deleteResponse) ApiKey() protocol.ApiKey { return protocol.DeleteRecords } //nolint:revive // its spelling

// add asks for one partition more.
func (r *deleteRequest) add(at partition, offset int64) {
	i := slices.IndexFunc(r.Topics, func(t deleteTopic) bool { return t.Topic == at.topic })
	if i < 0 {
		i = len(r.Topics)
		r.Topics = append(r.Topics, deleteTopic{Topic: at.topic})
	}
	r.Topics[i].Partitions = append(r.Topics[i].Partitions, deletePartition{Partition: int32(at.id), Offset: offset})
}

// Broker is the leader of the request's partitions, which Split has made one broker's. Without one, any broker may say
// that it is not.
func (r *deleteRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	if len(r.Topics) == 0 || len(r.Topics[0].Partitions) == 0 {
		return protocol.Broker{ID: noLeader}, nil
	}
	leader := leaderOf(cluster, r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition)
	if broker, ok := cluster.Brokers[leader]; ok {
		return broker, nil
	}
	return protocol.Broker{ID: noLeader}, nil
}

func leaderOf(cluster protocol.Cluster, topic string, id int32) int32 {
	if p, ok := cluster.Topics[topic].Partitions[id]; ok {
		return p.Leader
	}
	return noLeader
}

// Split makes one request for each leader.
func (r *deleteRequest) Split(cluster protocol.Cluster) ([]protocol.Message, protocol.Merger, error) {
	byLeader := map[int32]*deleteRequest{}
	var messages []protocol.Message
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			leader := leaderOf(cluster, t.Topic, p.Partition)
			part := byLeader[leader]
			if part == nil {
				part = &deleteRequest{TimeoutMs: r.TimeoutMs}
				byLeader[leader] = part
				messages = append(messages, part)
			}
			part.add(partition{t.Topic, int(p.Partition)}, p.Offset)
		}
	}
	return messages, &deleteResponse{}, nil
}

// Merge puts the answers of all brokers together. The partitions of one that did not answer are left out; it is an error
// when none did.
func (r *deleteResponse) Merge(_ []protocol.Message, results []any) (protocol.Message, error) {
	var failures []error
	for _, result := range results {
		m, err := protocol.Result(result)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		answer := m.(*deleteResponse)
		r.ThrottleTimeMs = max(r.ThrottleTimeMs, answer.ThrottleTimeMs)
		r.Topics = append(r.Topics, answer.Topics...)
	}
	if len(failures) > 0 && len(failures) == len(results) {
		return nil, errors.Join(failures...)
	}
	return r, nil
}

// each calls f with where each partition begins now, or with why it was refused.
func (r *deleteResponse) each(f func(at partition, low int64, err error)) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			var err error
			if p.ErrorCode != 0 {
				err = kafka.Error(p.ErrorCode)
			}
			f(partition{t.Topic, int(p.Partition)}, p.LowWatermark, err)
		}
	}
}
