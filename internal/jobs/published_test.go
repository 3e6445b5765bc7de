package jobs

import (
	"fmt"
	"maps"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// TestPublished: what was read of a campaign counts, in whatever form it was published; what is still open, of others, or replayed does not.
func TestPublished(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := broker.New(broker.Options{Brokers: cluster.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	header := func(pairs ...string) (list []delivery.Header) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, delivery.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return list
	}
	var records []delivery.Record
	for i := range 10 {
		records = append(records, delivery.Record{Value: []byte("{}"), Headers: header(delivery.HeaderCampaign, "a", delivery.HeaderJobID, fmt.Sprint(i))})
	}
	records = append(records,
		delivery.Record{Value: []byte("{}"), Headers: header(delivery.HeaderCampaign, "a", delivery.HeaderReplayedFrom, "dead/0/1")},
		delivery.Record{Value: []byte("{}"), Headers: header(delivery.HeaderCampaign, "b", delivery.HeaderDestination, "shop")},
		delivery.Record{Value: []byte(`{"campaign":"a","id":"e","payload":{}}`), Headers: header(delivery.HeaderDestination, "shop")},
		delivery.Record{Value: []byte("{}"), Headers: header(delivery.HeaderCampaign, "a", delivery.HeaderJobID, "open")})
	producer := broker.NewProducer(broker.ProducerOptions{Client: client})
	if _, err := producer.Publish(t.Context(), "jobs", broker.All(records), nil); err != nil {
		t.Fatal(err)
	}
	topics := Topics{Client: client, Group: "g", TopicSpec: requeue.TopicSpec{Ingress: []string{"jobs"}}}
	if n, to, err := topics.Published(t.Context(), "a"); err != nil || n != 0 || len(to) > 0 {
		t.Errorf("%d before anything was read, %v", n, err)
	}
	group := kafka.Client{Addr: kafka.TCP(cluster.ListenAddrs()...)}
	if _, err := group.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{
		GroupID: "g", GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{"jobs": {{Partition: 0, Offset: int64(len(records)) - 1}}},
	}); err != nil {
		t.Fatal(err)
	}
	if n, to, err := topics.Published(t.Context(), "a"); err != nil || n != 11 || !maps.Equal(to, map[string]int64{"shop": 1}) {
		t.Errorf("%d, want 11, to %v; %v", n, to, err)
	}
}
