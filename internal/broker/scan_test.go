package broker

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

var jobs = Partition{Topic: "jobs", ID: 0}

// publishEmpty writes n empty records to the jobs.
func publishEmpty(t testing.TB, client *Client, n int) {
	t.Helper()
	if _, err := client.publish(t, jobs.Topic, All(make([]delivery.Record, n))); err != nil {
		t.Fatal(err)
	}
}

// A scan waits for a partition that has no leader for a moment.
func TestScanOutlivesAnElection(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Cluster(t, kfake.SeedTopics(1, "jobs"))
	client := dial(t, Options{Brokers: cluster.ListenAddrs()})
	publishEmpty(t, client, 3)
	asked := 0
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked++; asked > 2 {
			return nil, nil, false
		}
		in := req.(*kmsg.ListOffsetsRequest)
		res := in.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		p.ErrorCode = int16(kafka.NotLeaderForPartition)
		topic.Topic, topic.Partitions = in.Topics[0].Topic, append(topic.Partitions, p)
		res.Topics = append(res.Topics, topic)
		return res, nil, true
	})
	n := 0
	for _, err := range client.Scan(t.Context(), jobs, 0) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 3 || asked < 3 {
		t.Errorf("%d records, asked %d times", n, asked)
	}
}

func TestScanStopsAtTheEndOfTheCall(t *testing.T) {
	t.Parallel()
	client := fakeCluster(t, kfake.SeedTopics(1, "jobs"))
	publishEmpty(t, client, 10)
	var got []int64
	for r, err := range client.Scan(t.Context(), jobs, 4) {
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			publishEmpty(t, client, 5) // meanwhile
		}
		got = append(got, r.Offset)
	}
	if !slices.Equal(got, []int64{4, 5, 6, 7, 8, 9}) {
		t.Errorf("read %v", got)
	}
	for r, err := range client.Scan(t.Context(), jobs, 99) {
		t.Errorf("beyond the end: %v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range client.Scan(ctx, jobs, 0) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}
