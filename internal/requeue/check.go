package requeue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

// topicView is what the cluster says about an existing topic.
type topicView struct {
	partitions int
	replicas   int
	configs    map[string]string
}

// clusterView is what the cluster says about the topics of a spec; missing topics are not in it.
type clusterView struct {
	brokers int
	topics  map[string]topicView
}

// ownedMaxMessage is the record size that owned topics must take: that of the largest ingress topic and room for
// the headers. Where no ingress topic exists yet, Kafka's default stands in for theirs.
func (v clusterView) ownedMaxMessage(spec TopicSpec) int64 {
	largest := int64(0)
	for _, name := range spec.Ingress {
		if n, err := strconv.ParseInt(v.topics[name].configs[confMaxMessage], 10, 64); err == nil {
			largest = max(largest, n)
		}
	}
	if largest == 0 {
		largest = defaultMaxMessage
	}
	return largest + headerRoom
}

// readTopics asks the cluster about the topics of the spec, whose defaults are filled in.
func readTopics(ctx context.Context, client *kafka.Client, spec TopicSpec) (clusterView, error) {
	names := spec.Names()
	view := clusterView{topics: make(map[string]topicView)}
	layout, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
	if err != nil {
		return view, fmt.Errorf("read topics: %w", err)
	}
	view.brokers = len(layout.Brokers)
	var resources []kafka.DescribeConfigRequestResource
	for _, t := range layout.Topics {
		if len(t.Partitions) == 0 {
			if t.Error != nil && !errors.Is(t.Error, kafka.UnknownTopicOrPartition) {
				return view, fmt.Errorf("read topic %s: %w", t.Name, t.Error)
			}
			continue
		}
		view.topics[t.Name] = topicView{
			partitions: len(t.Partitions), replicas: len(t.Partitions[0].Replicas), configs: make(map[string]string),
		}
		resources = append(resources, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: t.Name,
			ConfigNames: []string{
				confCleanup, confRetentionTime, confRetentionBytes, confMaxMessage, confSegmentBytes, confSegmentTime,
			},
		})
	}
	if len(resources) == 0 {
		return view, nil
	}
	answer, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: resources})
	if err != nil {
		return view, fmt.Errorf("read topic configurations: %w", err)
	}
	for _, r := range answer.Resources {
		if r.Error != nil {
			return view, fmt.Errorf("read the configuration of topic %s: %w", r.ResourceName, r.Error)
		}
		for _, e := range r.ConfigEntries {
			view.topics[r.ResourceName].configs[e.ConfigName] = e.ConfigValue
		}
	}
	return view, nil
}

// CheckTopics compares the cluster with the spec. It returns one clear line with the remedy for each topic that
// is missing or would lose jobs; the error is for a cluster that does not answer.
func CheckTopics(ctx context.Context, client *kafka.Client, spec TopicSpec) (problems []string, err error) {
	spec, err = spec.withDefaults()
	if err != nil {
		return nil, err
	}
	view, err := readTopics(ctx, client, spec)
	if err != nil {
		return nil, err
	}
	for _, name := range spec.Ingress {
		if _, ok := view.topics[name]; !ok {
			problems = append(problems, fmt.Sprintf("ingress topic %s does not exist: create it, pacer never does", name))
		}
	}
	const remedy = "run pacer migrate up"
	for _, t := range spec.owned(view.ownedMaxMessage(spec)) {
		have, ok := view.topics[t.name]
		if !ok {
			problems = append(problems, fmt.Sprintf("topic %s does not exist: %s", t.name, remedy))
			continue
		}
		if have.partitions < t.partitions {
			problems = append(problems, fmt.Sprintf("topic %s has %d partitions and must have %d: %s",
				t.name, have.partitions, t.partitions, remedy))
		}
		if have.replicas < spec.ReplicationFactor {
			problems = append(problems, fmt.Sprintf("topic %s has %d replicas and %d are configured: reassign its partitions with Kafka's tools",
				t.name, have.replicas, spec.ReplicationFactor))
		}
		for _, d := range t.deviations(have.configs) {
			problems = append(problems, fmt.Sprintf("topic %s: %s is %s and must be %s: %s",
				t.name, d.config, orNone(d.have), d.must, remedy))
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
func ListTopics(ctx context.Context, client *kafka.Client, spec TopicSpec) ([]TopicStatus, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	view, err := readTopics(ctx, client, spec)
	if err != nil {
		return nil, err
	}
	var list []TopicStatus
	for i, name := range spec.Names() {
		s := TopicStatus{Name: name, Owned: i >= len(spec.Ingress)}
		if t, ok := view.topics[name]; ok {
			s.Exists, s.Partitions, s.Replicas = true, t.partitions, t.replicas
			s.MaxMessage, _ = strconv.ParseInt(t.configs[confMaxMessage], 10, 64) // 0 where the broker does not say
			if ms, err := strconv.ParseInt(t.configs[confRetentionTime], 10, 64); err == nil {
				s.Retention = retention(ms)
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// retention turns milliseconds into a duration without overflow: some clusters spell "for ever" as 2^63-1.
func retention(ms int64) time.Duration {
	if ms < 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}
