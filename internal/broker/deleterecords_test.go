package broker

import (
	"testing"

	"github.com/segmentio/kafka-go/protocol/prototest"
)

func TestDeleteRecordsIsSpelledRight(t *testing.T) {
	for _, version := range []int16{0, 1} {
		prototest.TestRequest(t, version, &deleteRequest{TimeoutMs: 5000, Topics: []deleteTopic{
			{Topic: "lanes", Partitions: []deletePartition{{Partition: 3, Offset: 1 << 40}, {Partition: 7, Offset: 1}}},
			{Topic: "timer", Partitions: []deletePartition{{Partition: 0, Offset: 5}}},
		}})
		prototest.TestResponse(t, version, &deleteResponse{ThrottleTimeMs: 7, Topics: []deletedTopic{
			{Topic: "lanes", Partitions: []deletedPartition{{Partition: 3, LowWatermark: 9, ErrorCode: 1}}},
		}})
	}
}
