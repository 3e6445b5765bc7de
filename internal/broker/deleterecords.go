package broker

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteTimeout bounds one request; the broker waits for its replicas for half of it.
const deleteTimeout = 10 * time.Second

// Deleted is the first offset of a partition after a request, or the error if no record was deleted.
type Deleted struct {
	Low int64
	Err error
}

// DeleteRecords deletes all records before an offset from each partition, with one request per broker. Kafka makes the
// records unreadable at once, and frees their disk space when a whole segment of the log lies before the offset. A
// partition that a broker leaves out of its answer is left out.
func (c *Client) DeleteRecords(ctx context.Context, before map[Partition]int64) map[Partition]Deleted {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	out := make(map[Partition]Deleted, len(before))
	groups := c.byLeader(ctx, maps.Keys(before), func(at Partition, err error) { out[at] = Deleted{Err: err} })
	var mu sync.Mutex // guards out
	var asking sync.WaitGroup
	for leader, group := range groups {
		asking.Go(func() {
			answer, err := c.deleteOf(ctx, leader, group, before)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(out, answer)
			if err != nil {
				c.forget()
				for _, at := range group {
					out[at] = Deleted{Err: err}
				}
			}
		})
	}
	asking.Wait()
	return out
}

// deleteOf sends the request to one broker, the leader of the partitions.
func (c *Client) deleteOf(ctx context.Context, leader int, led []Partition, before map[Partition]int64) (map[Partition]Deleted, error) {
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.TimeoutMillis = int32((deleteTimeout / 2).Milliseconds())
	for topic, list := range byTopic(led, func(at Partition) (string, kmsg.DeleteRecordsRequestTopicPartition) {
		return at.Topic, kmsg.DeleteRecordsRequestTopicPartition{Partition: int32(at.ID), Offset: before[at]}
	}) {
		request.Topics = append(request.Topics, kmsg.DeleteRecordsRequestTopic{Topic: topic, Partitions: list})
	}
	answer, err := exchanged[*kmsg.DeleteRecordsResponse](ctx, c, leader, request)
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
