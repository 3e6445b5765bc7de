package requeue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/broker"
)

// clusterView is the state of the spec's topics in the cluster, without those that do not exist.
type clusterView struct {
	spec    TopicSpec // with its defaults
	brokers int
	topics  map[string]broker.Topic
}

// owned returns the required state of the owned topics. They must accept the largest records that an ingress topic
// accepts, plus the headers. If no ingress topic exists yet, Kafka's default is used for them.
func (v clusterView) owned() []ownedTopic {
	largest := int64(0)
	for _, name := range v.spec.Ingress {
		if n, err := strconv.ParseInt(v.topics[name].Config[confMaxMessage], 10, 64); err == nil {
			largest = max(largest, n)
		}
	}
	return v.spec.owned(cmp.Or(largest, defaultMaxMessage) + headerBytes)
}

// readTopics describes the topics of the spec, and fills in its defaults.
func readTopics(ctx context.Context, client *broker.Client, spec TopicSpec) (view clusterView, err error) {
	view.spec = spec.withDefaults()
	view.topics, view.brokers, err = client.Topics(ctx, spec.Names(), []string{
		confCleanup, confRetentionTime, confRetentionBytes, confMaxMessage, confSegmentBytes, confSegmentTime,
		confUnclean,
	})
	return view, err
}

// CheckTopics compares the cluster with the spec. It returns one line with the remedy for each topic that is missing
// or would lose jobs; the error is for a cluster that does not answer.
func CheckTopics(ctx context.Context, client *broker.Client, spec TopicSpec) (problems []string, err error) {
	view, err := readTopics(ctx, client, spec)
	if err == nil {
		problems, err = UnreadTimers(ctx, client, view.spec)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range spec.Ingress {
		if _, ok := view.topics[name]; !ok {
			problems = append(problems, fmt.Sprintf("ingress topic %s does not exist: create it, pacer never does", name))
		}
	}
	const remedy = "run pacer migrate up"
	for _, t := range view.owned() {
		have, ok := view.topics[t.name]
		if !ok {
			problems = append(problems, fmt.Sprintf("topic %s does not exist: %s", t.name, remedy))
			continue
		}
		if have.Partitions < t.partitions {
			problems = append(problems, fmt.Sprintf("topic %s has %d partitions and must have %d: %s",
				t.name, have.Partitions, t.partitions, remedy))
		}
		if have.Replicas < spec.ReplicationFactor {
			problems = append(problems, fmt.Sprintf("topic %s has %d replicas and %d are configured: reassign its partitions with Kafka's tools",
				t.name, have.Replicas, spec.ReplicationFactor))
		}
		for _, d := range t.deviations(have.Config) {
			problems = append(problems, fmt.Sprintf("topic %s: %s is %s and must be %s: %s",
				t.name, d.config, orNone(d.have), d.must, remedy))
		}
	}
	const setting, needed = "offset.metadata.max.bytes", 4096
	value, err := client.BrokerConfig(ctx, setting)
	if most, bad := strconv.Atoi(value); bad == nil && most < needed {
		problems = append(problems, fmt.Sprintf("the brokers have %s %d, so they refuse commits of busy lanes: set at least %d", setting, most, needed))
	}
	return problems, err
}

// UnreadTimers returns one line with the remedy for each timer of the cluster that is not in the spec and has records.
func UnreadTimers(ctx context.Context, client *broker.Client, spec TopicSpec) (problems []string, err error) {
	all, _, err := client.Identify(ctx)
	if err != nil {
		return nil, err
	}
	timers := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return !strings.HasPrefix(name, spec.Prefix+"timer.") || slices.Contains(spec.Names(), name)
	})
	if len(timers) == 0 {
		return nil, nil
	}
	if client, err = client.For(timers...); err != nil {
		return nil, err
	}
	defer client.Close()
	for _, name := range timers {
		partitions, err := client.PartitionsOf(ctx, name)
		if err != nil {
			return problems, err
		}
		for _, at := range partitions {
			first, end, err := client.Bounds(ctx, at)
			if err != nil {
				return problems, err
			}
			if first < end {
				delay := strings.TrimPrefix(name, spec.Prefix+"timer.")
				problems = append(problems, fmt.Sprintf("topic %s: its jobs are not read; add %s to kafka.timer_delays", name, delay))
				break
			}
		}
	}
	return problems, nil
}

// TopicStatus is one line of `pacer migrate status`.
type TopicStatus struct {
	Name       string
	Owned      bool // by pacer
	Exists     bool
	Partitions int
	Replicas   int
	Retention  time.Duration // negative: for ever
	MaxMessage int64         // bytes
}

// ListTopics returns the state of every topic of the spec, the ingress topics first.
func ListTopics(ctx context.Context, client *broker.Client, spec TopicSpec) ([]TopicStatus, error) {
	view, err := readTopics(ctx, client, spec)
	if err != nil {
		return nil, err
	}
	var list []TopicStatus
	for i, name := range spec.Names() {
		s := TopicStatus{Name: name, Owned: i >= len(spec.Ingress)}
		if t, ok := view.topics[name]; ok {
			s.Exists, s.Partitions, s.Replicas = true, t.Partitions, t.Replicas
			s.MaxMessage, _ = strconv.ParseInt(t.Config[confMaxMessage], 10, 64) // 0 if the broker does not report it
			if ms, err := strconv.ParseInt(t.Config[confRetentionTime], 10, 64); err == nil {
				s.Retention = retention(ms)
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// retention converts milliseconds to a duration without overflow: some clusters report "for ever" as 2^63-1.
func retention(ms int64) time.Duration {
	if ms < 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}
