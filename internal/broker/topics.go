package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/retry"
)

// Topic describes a topic that exists or is to be created.
type Topic struct {
	Name       string
	Partitions int
	Replicas   int
	Config     map[string]string
}

// Topics describes topics, with the named configurations. Topics that do not exist are left out.
func (c *Client) Topics(ctx context.Context, names, configs []string) (topics map[string]Topic, brokers int, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	layout, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
	if err != nil {
		return nil, 0, fmt.Errorf("read topics: %w", unnamed(err))
	}
	topics = map[string]Topic{}
	for _, t := range layout.Topics {
		switch {
		case len(t.Partitions) > 0:
			topics[t.Name] = Topic{
				Name: t.Name, Partitions: len(t.Partitions), Replicas: len(t.Partitions[0].Replicas), Config: make(map[string]string),
			}
		case t.Error != nil && !errors.Is(t.Error, kafka.UnknownTopicOrPartition):
			err = errors.Join(err, fmt.Errorf("read topic %s: %w", t.Name, t.Error))
		}
	}
	brokers = len(layout.Brokers)
	if err != nil || len(topics) == 0 {
		return topics, brokers, err
	}
	var resources []kafka.DescribeConfigRequestResource
	for name := range topics {
		resources = append(resources, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: name, ConfigNames: configs,
		})
	}
	answer, err := c.kafka.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: resources})
	if err != nil {
		return nil, 0, fmt.Errorf("read topic configurations: %w", unnamed(err))
	}
	for _, r := range answer.Resources {
		if r.Error != nil {
			return nil, 0, fmt.Errorf("read the configuration of topic %s: %w", r.ResourceName, r.Error)
		}
		for _, e := range r.ConfigEntries {
			topics[r.ResourceName].Config[e.ConfigName] = e.ConfigValue
		}
	}
	return topics, brokers, nil
}

// BrokerConfig returns a configuration of a broker, "" if the user may not read it.
func (c *Client) BrokerConfig(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	layout, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil || len(layout.Brokers) == 0 {
		return "", err
	}
	answer, err := c.kafka.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeBroker, ResourceName: strconv.Itoa(layout.Brokers[0].ID), ConfigNames: []string{name},
	}}})
	if err != nil || len(answer.Resources) != 1 || len(answer.Resources[0].ConfigEntries) != 1 {
		return "", err
	}
	return answer.Resources[0].ConfigEntries[0].ConfigValue, nil
}

// CreateTopics creates topics, waits until their partitions have leaders, and returns those that it created. A topic
// that exists already is no error. slow, if it is not nil, is told once if the leaders take long, with what a broker last answered.
func (c *Client) CreateTopics(ctx context.Context, topics []Topic, slow func(error)) (made []Topic, err error) {
	if len(topics) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, topicsAppear)
	defer cancel()
	configs := make([]kafka.TopicConfig, len(topics))
	for i, t := range topics {
		configs[i] = kafka.TopicConfig{Topic: t.Name, NumPartitions: t.Partitions, ReplicationFactor: t.Replicas}
		for _, name := range slices.Sorted(maps.Keys(t.Config)) {
			configs[i].ConfigEntries = append(configs[i].ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: t.Config[name]})
		}
	}
	answer, err := c.kafka.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: configs})
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", unnamed(err))
	}
	for _, t := range topics {
		switch refusal := answer.Errors[t.Name]; {
		case refusal == nil:
			made = append(made, t)
		case !errors.Is(refusal, kafka.TopicAlreadyExists): // created by another process meanwhile: no error
			err = errors.Join(err, fmt.Errorf("create topic %s: %w", t.Name, refusal))
		}
	}
	if err == nil {
		err = c.awaitLeaders(ctx, topics, slow)
	}
	return made, err
}

const (
	// topicsAppear is how long new topics may take to be made and to have leaders: the brokers learn of them with a delay, which is long
	// for a broker that has just started on a slow machine.
	topicsAppear = 2 * time.Minute
	topicsSlow   = 5 * time.Second // after which it is told that they take long
	leadersEvery = time.Second     // at most between two looks at the leaders, each of which is a request for each partition
)

// awaitLeaders waits until every partition of the new topics has a leader, in the metadata that the next request goes by
// and in fact: a broker is the leader in metadata a moment before it accepts records.
func (c *Client) awaitLeaders(ctx context.Context, topics []Topic, slow func(error)) error {
	begun, pause := time.Now(), 20*time.Millisecond
	for {
		c.forget()
		led, err := c.led(ctx, topics)
		if led {
			return nil
		}
		if slow != nil && time.Since(begun) > topicsSlow {
			slow(err)
			slow = nil
		}
		if retry.Sleep(ctx, pause) != nil {
			return errors.Join(errors.New("topics were created and have no leaders yet; look at the brokers, then run it again"), err)
		}
		pause = min(2*pause, leadersEvery)
	}
}

// led reports whether every partition of topics has a leader.
func (c *Client) led(ctx context.Context, topics []Topic) (bool, error) {
	var partitions []Partition
	for _, t := range topics {
		leaders, err := c.Leaders(ctx, t.Name)
		if err != nil || len(leaders) < t.Partitions || slices.Contains(leaders, noLeader) {
			return false, err
		}
		for id := range t.Partitions {
			partitions = append(partitions, Partition{t.Name, id})
		}
	}
	_, err := c.Offsets(ctx, Latest, partitions...) // asks the replicas themselves
	return err == nil, err
}

// AddPartitions raises the number of partitions of the topic to partitions.
func (c *Client) AddPartitions(ctx context.Context, topic string, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	answer, err := c.kafka.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: int32(partitions)}},
	})
	if err == nil {
		err = answer.Errors[topic]
	}
	if err != nil {
		return fmt.Errorf("add partitions to topic %s: %w", topic, err)
	}
	return nil
}

// Configure sets configurations of a topic and keeps all others.
func (c *Client) Configure(ctx context.Context, topic string, configs map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	resource := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	for name, value := range configs {
		resource.Configs = append(resource.Configs, kafka.IncrementalAlterConfigsRequestConfig{
			Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet,
		})
	}
	answer, err := c.kafka.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	})
	if err == nil {
		for _, r := range answer.Resources {
			err = errors.Join(err, r.Error)
		}
	}
	if err != nil {
		return fmt.Errorf("change the configuration of topic %s: %w", topic, err)
	}
	return nil
}

// DeleteTopics deletes topics. It is no error if one does not exist.
func (c *Client) DeleteTopics(ctx context.Context, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	answer, err := c.kafka.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: topics})
	if err != nil {
		return fmt.Errorf("remove topics: %w", err)
	}
	for topic, refusal := range answer.Errors {
		if refusal != nil && !errors.Is(refusal, kafka.UnknownTopicOrPartition) {
			err = errors.Join(err, fmt.Errorf("remove topic %s: %w", topic, refusal))
		}
	}
	return err
}
