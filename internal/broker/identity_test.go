package broker

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// TestTopicMadeAnewHasAnotherID: a name does not say which topic it is.
func TestTopicMadeAnewHasAnotherID(t *testing.T) {
	onBrokers(t, func(t *testing.T, client *Client) {
		topic := testservices.Unique("identity")
		t.Cleanup(func() { _ = client.DeleteTopics(t.Context(), []string{topic}) })
		first := makeTopic(t, client, topic)
		found, counts, err := client.Identify(t.Context(), topic, "no-such-topic")
		if err != nil || len(found) != 1 || found[topic] != first || len(counts) != 1 || counts[topic] != 2 {
			t.Errorf("the topic is %s, and then %v, of %v partitions, %v", first, found, counts, err)
		}
		if _, err = client.IdentityOf(t.Context(), Partition{"no-such-topic", 0}); !errors.Is(err, ErrNoTopic) {
			t.Errorf("a topic that does not exist: %v", err)
		}
		if err := client.DeleteTopics(t.Context(), []string{topic}); err != nil {
			t.Fatal(err)
		}
		if second := makeTopic(t, client, topic); second == first {
			t.Errorf("made anew, the topic is %s, and was %s", second, first)
		}
	})
}

// makeTopic creates a topic and returns its id.
func makeTopic(t *testing.T, client *Client, topic string) delivery.TopicID {
	t.Helper()
	kafkatest.Eventually(t, "the topic is created", func() bool {
		made, err := client.CreateTopics(t.Context(), []Topic{{Name: topic, Partitions: 2, Replicas: 1}}, nil)
		return err == nil && len(made) == 1
	})
	id, err := client.IdentityOf(t.Context(), Partition{topic, 1})
	if err != nil || !id.Known() {
		t.Fatalf("the id of a new topic: %s, %v", id, err)
	}
	return id
}

// TestBrokersHaveToKnowIDs: before Kafka 2.8 there are none.
func TestBrokersHaveToKnowIDs(t *testing.T) {
	client := fakeCluster(t, kfake.MaxVersions(kversion.V2_7_0()), kfake.SeedTopics(1, "old"))
	if found, _, err := client.Identify(t.Context(), "old"); !errors.Is(err, errNoIDs) {
		t.Errorf("%v, %v", found, err)
	}
	if id, err := client.IdentityOf(t.Context(), Partition{"old", 0}); !errors.Is(err, errNoIDs) {
		t.Errorf("%s, %v", id, err)
	}
}
