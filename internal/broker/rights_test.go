package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

func TestLackingOperations(t *testing.T) {
	all := []Operation{OpRead, OpWrite, OpDelete, OpDescribeConfigs}
	for allowed, want := range map[int32]string{
		0:                    "[Read Write Delete DescribeConfigs]",
		1<<3 | 1<<8:          "[Write Delete DescribeConfigs]",
		1<<3 | 1<<4 | 1<<10:  "[Delete]",
		1<<13 - 1:            "[]",
		math.MinInt32:        "[]", // the broker does not tell
		math.MinInt32 | 1<<4: "[Read Delete DescribeConfigs]",
	} {
		if got := fmt.Sprint(lacking(allowed, all)); got != want {
			t.Errorf("%b: %s, want %s", allowed, got, want)
		}
	}
}

// TestRefusedLoginsNameTheirSetting: what an operator has to correct is in the line.
func TestRefusedLoginsNameTheirSetting(t *testing.T) {
	for code, want := range map[kafka.Error]string{
		kafka.SASLAuthenticationFailed:   "; correct kafka.sasl.username or kafka.sasl.password",
		kafka.UnsupportedSASLMechanism:   "; correct kafka.sasl.mechanism",
		kafka.TopicAuthorizationFailed:   "; the user of kafka.sasl lacks a right",
		kafka.GroupAuthorizationFailed:   "; the user of kafka.sasl lacks a right",
		kafka.ClusterAuthorizationFailed: "; the user of kafka.sasl lacks a right",
		kafka.LeaderNotAvailable:         "",
	} {
		err := fmt.Errorf("read topics: %w", code)
		again := Explained(fmt.Errorf("once more: %w", Explained(err)))
		if got := again.Error(); got != "once more: "+err.Error()+want || !errors.Is(again, code) {
			t.Errorf("%q, want %q at the end, once", got, want)
		}
	}
	if Explained(nil) != nil {
		t.Error("no error was explained")
	}
}

// TestADeniedTopicIsNotMissing: the error of a topic that may not be described says so.
func TestADeniedTopicIsNotMissing(t *testing.T) {
	t.Parallel()
	client := dial(t, Options{
		Brokers: kafkatest.Cluster(t, kfake.SeedTopics(1, "jobs")).ListenAddrs(),
		Wrap:    func(inner kafka.RoundTripper) kafka.RoundTripper { return denying{inner} },
	})
	_, err := client.Partitions(t.Context(), "jobs")
	if NoTopic(err) || !errors.Is(err, kafka.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("a topic that is denied: %v", err)
	}
	if _, err = client.Partitions(t.Context(), "none"); !errors.Is(err, ErrNoTopic) {
		t.Errorf("a topic that is missing: %v", err)
	}
}

// denying is the way to a broker that denies its user all topics that there are.
type denying struct{ kafka.RoundTripper }

func (d denying) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	answer, err := d.RoundTripper.RoundTrip(ctx, addr, request)
	if a, ok := answer.(*metadata.Response); ok {
		is := *a // it is that of the transport's cache
		is.Topics = slices.Clone(a.Topics)
		for i, topic := range is.Topics {
			if len(topic.Partitions) > 0 {
				is.Topics[i].ErrorCode, is.Topics[i].Partitions = int16(kafka.TopicAuthorizationFailed), nil
			}
		}
		answer = &is
	}
	return answer, err
}
