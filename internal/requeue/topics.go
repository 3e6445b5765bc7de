package requeue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

// Defaults of TopicSpec.
const (
	DefaultTimerPartitions = 4
	DefaultDeadPartitions  = 4
	DefaultDeadRetention   = 30 * 24 * time.Hour

	DefaultResultPartitions = 6
	DefaultResultRetention  = 7 * 24 * time.Hour
)

// replaysRetention outlives the dead letters that are remembered as replayed, unless those are kept for longer.
const replaysRetention = 365 * 24 * time.Hour

// headerRoom is how much larger than an ingress record the record of a re-enqueued job may be.
const headerRoom = 64 << 10

// defaultMaxMessage is Kafka's own default of max.message.bytes.
const defaultMaxMessage = 1_048_588

// Names of topic configurations.
const (
	confRetentionTime  = "retention.ms"
	confRetentionBytes = "retention.bytes"
	confCleanup        = "cleanup.policy"
	confMaxMessage     = "max.message.bytes"
	confMinInSync      = "min.insync.replicas"
	confSegmentBytes   = "segment.bytes"
	confSegmentTime    = "segment.ms"
)

// Kafka gives disk back by whole segments of a partition's log, and never that of the one being written. So small ones are
// made for lanes and timers, from which the janitor removes what was delivered: what is left of it on disk is at most one
// for each partition, and where little is written, it goes with the first record after an hour. A backlog of hundreds of
// gigabytes makes many of them; somebody who has that may choose larger ones.
const (
	segmentBytes    = 16 << 20
	maxSegmentBytes = 128 << 20
	segmentTime     = time.Hour
	segmentMessages = 8 // of the largest size, at least
)

// TopicSpec says which topics pacer needs. Zero values stand for the defaults.
type TopicSpec struct {
	Prefix          string          // of the owned topics; "pacer."
	Ingress         []string        // never created by pacer
	Lanes           int             // 256
	Timers          []time.Duration // 5s, 30s, 5m, 30m, 6h
	TimerPartitions int             // of each timer; 4
	DeadPartitions  int             // 4
	// ReplicationFactor of topics that are created; min(3, brokers) unless set.
	ReplicationFactor int
	DeadRetention     time.Duration // 30 days
	// Results adds the topic of the results.
	Results          bool
	ResultPartitions int           // 6
	ResultRetention  time.Duration // 7 days
}

func (s TopicSpec) withDefaults() (TopicSpec, error) {
	if s.Prefix == "" {
		s.Prefix = DefaultPrefix
	}
	for field, v := range map[*int]int{
		&s.Lanes: DefaultLanes, &s.TimerPartitions: DefaultTimerPartitions, &s.DeadPartitions: DefaultDeadPartitions,
		&s.ResultPartitions: DefaultResultPartitions,
	} {
		if *field == 0 {
			*field = v
		}
	}
	if s.DeadRetention == 0 {
		s.DeadRetention = DefaultDeadRetention
	}
	if s.ResultRetention == 0 {
		s.ResultRetention = DefaultResultRetention
	}
	var err error
	s.Timers, err = sortedTimers(s.Timers)
	if err == nil && (s.Lanes < 1 || s.TimerPartitions < 1 || s.DeadPartitions < 1 || s.ResultPartitions < 1 ||
		s.ReplicationFactor < 0) {
		err = errors.New("topics: numbers of lanes, partitions and replicas must be positive")
	}
	return s, err
}

// Names lists every topic of the spec, the ingress topics first: what a transport's MetadataTopics must hold.
func (s TopicSpec) Names() []string {
	spec, err := s.withDefaults()
	if err != nil {
		return slices.Clone(s.Ingress)
	}
	names := slices.Clone(spec.Ingress)
	for _, t := range spec.owned(0) {
		names = append(names, t.name)
	}
	return names
}

// ownedTopic is what an owned topic must be like.
type ownedTopic struct {
	name       string
	partitions int
	retention  int64 // milliseconds; -1: for ever
	maxMessage int64
}

func (s TopicSpec) owned(maxMessage int64) []ownedTopic {
	topics := []ownedTopic{{LaneTopic(s.Prefix), s.Lanes, -1, maxMessage}}
	for _, d := range s.Timers {
		topics = append(topics, ownedTopic{TimerTopic(s.Prefix, d), s.TimerPartitions, -1, maxMessage})
	}
	topics = append(topics,
		ownedTopic{DeadTopic(s.Prefix), s.DeadPartitions, s.DeadRetention.Milliseconds(), maxMessage},
		ownedTopic{ReplaysTopic(s.Prefix), 1, max(s.DeadRetention, replaysRetention).Milliseconds(), maxMessage})
	if s.Results {
		topics = append(topics,
			ownedTopic{ResultsTopic(s.Prefix), s.ResultPartitions, s.ResultRetention.Milliseconds(), maxMessage})
	}
	return topics
}

// deviation is one configuration of an existing topic that differs from what it must be.
type deviation struct {
	config string
	have   string
	want   string
	must   string // for people: "-1", "at least 1114124"
}

// deviations compares the configurations of an existing topic. Longer retention of dead letters, room for larger records
// and segments of another size are somebody's choice and left alone, within bounds.
func (t ownedTopic) deviations(have map[string]string) []deviation {
	var out []deviation
	add := func(config, want, must string) {
		out = append(out, deviation{config: config, have: have[config], want: want, must: must})
	}
	if p := have[confCleanup]; p != "delete" {
		add(confCleanup, "delete", "delete")
	}
	atLeast := func(config string, want int64) {
		v, err := strconv.ParseInt(have[config], 10, 64)
		switch {
		case err == nil && want == -1 && v != -1:
			add(config, "-1", "-1, or waiting jobs are deleted")
		case err != nil || want != -1 && v != -1 && v < want:
			add(config, strconv.FormatInt(want, 10), "at least "+strconv.FormatInt(want, 10))
		}
	}
	atLeast(confRetentionTime, t.retention)
	atLeast(confRetentionBytes, -1)
	atLeast(confMaxMessage, t.maxMessage)
	if t.swept() {
		atMost := func(config string, want, most int64) {
			if v, err := strconv.ParseInt(have[config], 10, 64); err != nil || v > most {
				add(config, strconv.FormatInt(want, 10),
					"at most "+strconv.FormatInt(most, 10)+", or the disk of delivered jobs is not given back")
			}
		}
		atMost(confSegmentBytes, t.segment(), max(t.segment(), maxSegmentBytes))
		atMost(confSegmentTime, segmentTime.Milliseconds(), segmentTime.Milliseconds())
	}
	return out
}

// swept tells whether the janitor removes what was delivered: from topics that keep their records for ever.
func (t ownedTopic) swept() bool { return t.retention < 0 }

// segment is the size of the pieces of a swept topic's log.
func (t ownedTopic) segment() int64 {
	return min(max(segmentBytes, segmentMessages*t.maxMessage), 1<<30)
}

func (t ownedTopic) create(replicas int) kafka.TopicConfig {
	entries := []kafka.ConfigEntry{
		{ConfigName: confCleanup, ConfigValue: "delete"},
		{ConfigName: confRetentionTime, ConfigValue: strconv.FormatInt(t.retention, 10)},
		{ConfigName: confRetentionBytes, ConfigValue: "-1"},
		{ConfigName: confMaxMessage, ConfigValue: strconv.FormatInt(t.maxMessage, 10)},
	}
	if t.swept() {
		entries = append(entries,
			kafka.ConfigEntry{ConfigName: confSegmentBytes, ConfigValue: strconv.FormatInt(t.segment(), 10)},
			kafka.ConfigEntry{ConfigName: confSegmentTime, ConfigValue: strconv.FormatInt(segmentTime.Milliseconds(), 10)})
	}
	if replicas >= 3 {
		// An acknowledgement of all in-sync replicas means two copies at least, and one broker may still be down.
		entries = append(entries, kafka.ConfigEntry{ConfigName: confMinInSync, ConfigValue: "2"})
	}
	return kafka.TopicConfig{Topic: t.name, NumPartitions: t.partitions, ReplicationFactor: replicas, ConfigEntries: entries}
}

// EnsureTopics creates the owned topics that are missing and brings the configurations of the others in line. It
// returns one line for each change made. It never creates ingress topics, never deletes a topic, never takes
// partitions away and never shortens what a topic keeps; running it again changes nothing. The client's
// transport must not be limited to other topics (see TopicSpec.Names).
func EnsureTopics(ctx context.Context, client *kafka.Client, spec TopicSpec) (changes []string, err error) {
	spec, err = spec.withDefaults()
	if err != nil {
		return nil, err
	}
	view, err := readTopics(ctx, client, spec)
	if err != nil {
		return nil, err
	}
	replicas := spec.ReplicationFactor
	if replicas == 0 {
		replicas = min(3, max(1, view.brokers))
	}
	var missing []kafka.TopicConfig
	for _, t := range spec.owned(view.ownedMaxMessage(spec)) {
		have, ok := view.topics[t.name]
		if !ok {
			missing = append(missing, t.create(replicas))
			continue
		}
		lines, err := adjust(ctx, client, t, have)
		changes = append(changes, lines...)
		if err != nil {
			return changes, err
		}
	}
	created, err := createTopics(ctx, client, missing)
	return append(changes, created...), err
}

func createTopics(ctx context.Context, client *kafka.Client, missing []kafka.TopicConfig) (changes []string, err error) {
	if len(missing) == 0 {
		return nil, nil
	}
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: missing})
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", err)
	}
	for _, t := range missing {
		switch refusal := answer.Errors[t.Topic]; {
		case refusal == nil:
			changes = append(changes, fmt.Sprintf("created topic %s with %d partitions and %d replicas",
				t.Topic, t.NumPartitions, t.ReplicationFactor))
		case errors.Is(refusal, kafka.TopicAlreadyExists): // somebody else was faster
		default:
			err = errors.Join(err, fmt.Errorf("create topic %s: %w", t.Topic, refusal))
		}
	}
	if err != nil {
		return changes, err
	}
	return changes, awaitTopics(ctx, client, missing)
}

// topicsAppear is how long new topics may take to have leaders; brokers create them first and tell each other then.
const topicsAppear = 15 * time.Second

// awaitTopics waits until every partition of the new topics has a leader, so that whoever comes next finds them.
func awaitTopics(ctx context.Context, client *kafka.Client, topics []kafka.TopicConfig) error {
	ctx, cancel := context.WithTimeout(ctx, topicsAppear)
	defer cancel()
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Topic
	}
	for {
		answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
		if err == nil && led(answer, topics) {
			return nil
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return errors.Join(errors.New("topics were created and have no leaders yet; look at the brokers, then run it again"), err)
		}
	}
}

// led tells whether all partitions of the topics have leaders.
func led(answer *kafka.MetadataResponse, topics []kafka.TopicConfig) bool {
	leaders := map[string]int{}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if t.Error == nil && p.Error == nil && p.Leader.Host != "" {
				leaders[t.Name]++
			}
		}
	}
	for _, t := range topics {
		if leaders[t.Topic] < t.NumPartitions {
			return false
		}
	}
	return true
}

// adjust brings an existing topic in line.
func adjust(ctx context.Context, client *kafka.Client, t ownedTopic, have topicView) (changes []string, err error) {
	if have.partitions < t.partitions {
		answer, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
			Topics: []kafka.TopicPartitionsConfig{{Name: t.name, Count: int32(t.partitions)}},
		})
		if err == nil {
			err = answer.Errors[t.name]
		}
		if err != nil {
			return nil, fmt.Errorf("add partitions to topic %s: %w", t.name, err)
		}
		changes = append(changes, fmt.Sprintf("topic %s: %d partitions, was %d", t.name, t.partitions, have.partitions))
	}
	wrong := t.deviations(have.configs)
	if len(wrong) == 0 {
		return changes, nil
	}
	resource := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: t.name}
	for _, d := range wrong {
		resource.Configs = append(resource.Configs, kafka.IncrementalAlterConfigsRequestConfig{
			Name: d.config, Value: d.want, ConfigOperation: kafka.ConfigOperationSet,
		})
	}
	answer, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	})
	if err == nil {
		for _, r := range answer.Resources {
			err = errors.Join(err, r.Error)
		}
	}
	if err != nil {
		return changes, fmt.Errorf("change the configuration of topic %s: %w", t.name, err)
	}
	for _, d := range wrong {
		changes = append(changes, fmt.Sprintf("topic %s: %s = %s, was %s", t.name, d.config, d.want, orNone(d.have)))
	}
	return changes, nil
}

func orNone(s string) string {
	if s == "" {
		return "not set"
	}
	return s
}
