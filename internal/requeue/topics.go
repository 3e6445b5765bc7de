package requeue

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/broker"
)

// Retention of the topics. Notes of replays are kept longer than the dead letters that they mark as replayed.
const (
	deadRetention    = 30 * 24 * time.Hour
	resultRetention  = 7 * 24 * time.Hour
	replaysRetention = 365 * 24 * time.Hour
	// The answer of a destination cannot be had again.
	responseRetention = 30 * 24 * time.Hour
)

// headerBytes is how much larger than an ingress record the record of a re-enqueued job may be.
const headerBytes = 64 << 10

// defaultMaxMessage is Kafka's default of max.message.bytes.
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
	confUnclean        = "unclean.leader.election.enable"
)

// Kafka frees disk space by whole segments of a partition's log, and never the segment being written. So lanes and timers, where the
// janitor deletes delivered records, have small segments. At most one segment of deleted records per partition stays on disk. With little
// traffic it goes with the first record after an hour. A backlog of hundreds of gigabytes makes many segments; for that, larger ones may
// be configured.
const (
	segmentBytes    = 16 << 20
	maxSegmentBytes = 128 << 20
	segmentTime     = time.Hour
	segmentMessages = 8 // at least this many of the largest size
)

// Partitions of the topics: of each timer, of the dead letters, and of the results and of each topic of responses.
const timerPartitions, deadPartitions, resultPartitions = 4, 4, 6

// TopicSpec describes the topics that pacer needs. Zero values stand for the defaults.
type TopicSpec struct {
	Prefix  string          // of the owned topics; "pacer."
	Ingress []string        // never created by pacer
	Lanes   int             // 256
	Timers  []time.Duration // 5s, 30s, 5m, 30m, 6h; each once
	// ReplicationFactor of topics that are created; min(3, brokers) unless set.
	ReplicationFactor int
	// Results adds the topic of the results.
	Results bool
	// Responses are the topics that sinks write to what comes back from their destinations.
	Responses []string
}

func (s TopicSpec) withDefaults() TopicSpec {
	s.Prefix = cmp.Or(s.Prefix, DefaultPrefix)
	s.Lanes = cmp.Or(s.Lanes, DefaultLanes)
	if s.Timers = slices.Sorted(slices.Values(s.Timers)); len(s.Timers) == 0 {
		s.Timers = DefaultTimers()
	}
	return s
}

// Names returns every topic of the spec, the ingress topics first: what a client's Topics must contain.
func (s TopicSpec) Names() []string {
	names := slices.Clone(s.Ingress)
	for _, t := range s.withDefaults().owned(0) {
		names = append(names, t.name)
	}
	return names
}

// ownedTopic is the required state of an owned topic.
type ownedTopic struct {
	name       string
	partitions int
	retention  int64 // milliseconds; -1: for ever
	maxMessage int64
}

func (s TopicSpec) owned(maxMessage int64) []ownedTopic {
	topics := []ownedTopic{{LaneTopic(s.Prefix), s.Lanes, -1, maxMessage}}
	for _, d := range s.Timers {
		topics = append(topics, ownedTopic{TimerTopic(s.Prefix, d), timerPartitions, -1, maxMessage})
	}
	topics = append(topics,
		ownedTopic{DeadTopic(s.Prefix), deadPartitions, deadRetention.Milliseconds(), maxMessage},
		ownedTopic{ReplaysTopic(s.Prefix), 1, replaysRetention.Milliseconds(), maxMessage})
	if s.Results {
		topics = append(topics, ownedTopic{ResultsTopic(s.Prefix), resultPartitions, resultRetention.Milliseconds(), maxMessage})
	}
	for _, name := range s.Responses {
		topics = append(topics, ownedTopic{name, resultPartitions, responseRetention.Milliseconds(), maxMessage})
	}
	return topics
}

// deviation is a configuration of an existing topic that differs from the required one.
type deviation struct {
	config, have, want string
	must               string // for people: "-1", "at least 1114124"
}

// deviations compares the configurations of an existing topic with the required ones. A longer retention of dead
// letters, room for larger records and another segment size are the operator's choice and left alone, within bounds.
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
		case err == nil && want == -1 && v != -1 && v != math.MaxInt64: // some clusters report "for ever" so
			add(config, "-1", "-1, or waiting jobs are deleted")
		case err != nil || want != -1 && v != -1 && v < want:
			add(config, strconv.FormatInt(want, 10), "at least "+strconv.FormatInt(want, 10))
		}
	}
	atLeast(confRetentionTime, t.retention)
	atLeast(confRetentionBytes, -1)
	atLeast(confMaxMessage, t.maxMessage)
	if have[confUnclean] == "true" { // unset where a broker does not report it; false is Kafka's default
		add(confUnclean, "false", "false, or an election may lose jobs that Kafka has acknowledged")
	}
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

// swept reports whether the janitor deletes delivered records from the topic: those without retention.
func (t ownedTopic) swept() bool { return t.retention < 0 }

// segment returns the segment size of a swept topic, in bytes.
func (t ownedTopic) segment() int64 {
	return min(max(segmentBytes, segmentMessages*t.maxMessage), 1<<30)
}

func (t ownedTopic) create(replicas int) broker.Topic {
	config := map[string]string{
		confCleanup:        "delete",
		confRetentionTime:  strconv.FormatInt(t.retention, 10),
		confRetentionBytes: "-1",
		confMaxMessage:     strconv.FormatInt(t.maxMessage, 10),
	}
	if t.swept() {
		config[confSegmentBytes] = strconv.FormatInt(t.segment(), 10)
		config[confSegmentTime] = strconv.FormatInt(segmentTime.Milliseconds(), 10)
	}
	if replicas >= 3 {
		// Acknowledgement by all in-sync replicas then means at least two copies, while one broker may be down.
		config[confMinInSync] = "2"
	}
	return broker.Topic{Name: t.name, Partitions: t.partitions, Replicas: replicas, Config: config}
}

// EnsureTopics creates the owned topics that are missing and corrects the configurations of the others. It returns one
// line for each change made. It never creates ingress topics, deletes topics, removes partitions or shortens a
// retention; running it again changes nothing. The client must not be limited to other topics (see TopicSpec.Names). slow, if it is not nil,
// is told once if new topics take long, with what a broker last answered.
func EnsureTopics(ctx context.Context, client *broker.Client, spec TopicSpec, slow func(error)) (changes []string, err error) {
	view, err := readTopics(ctx, client, spec)
	if err != nil {
		return nil, err
	}
	replicas := cmp.Or(spec.ReplicationFactor, min(3, max(1, view.brokers)))
	var missing []broker.Topic
	for _, t := range view.owned() {
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
	created, err := client.CreateTopics(ctx, missing, slow)
	for _, t := range created {
		changes = append(changes, fmt.Sprintf("created topic %s with %d partitions and %d replicas", t.Name, t.Partitions, t.Replicas))
	}
	if err != nil || len(created) == 0 {
		return changes, err
	}
	// Not every cluster lets every configuration be set, so what must only not be changed is corrected where it is.
	lines, err := EnsureTopics(ctx, client, spec, slow)
	return append(changes, lines...), err
}

// RemoveTopics deletes the owned topics that exist, with the jobs in them, and returns their names. Ingress topics stay.
func RemoveTopics(ctx context.Context, client *broker.Client, spec TopicSpec) ([]string, error) {
	topics, err := ListTopics(ctx, client, spec)
	if err != nil {
		return nil, err
	}
	topics = slices.DeleteFunc(topics, func(t TopicStatus) bool { return !t.Owned || !t.Exists || slices.Contains(spec.Ingress, t.Name) })
	if len(topics) == 0 {
		return nil, nil
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return names, client.DeleteTopics(ctx, names)
}

// adjust corrects an existing topic.
func adjust(ctx context.Context, client *broker.Client, t ownedTopic, have broker.Topic) (changes []string, err error) {
	if have.Partitions < t.partitions {
		if err := client.AddPartitions(ctx, t.name, t.partitions); err != nil {
			return nil, err
		}
		changes = append(changes, fmt.Sprintf("topic %s: %d partitions, was %d", t.name, t.partitions, have.Partitions))
	}
	wrong := t.deviations(have.Config)
	if len(wrong) == 0 {
		return changes, nil
	}
	config := make(map[string]string, len(wrong))
	for _, d := range wrong {
		config[d.config] = d.want
	}
	if err := client.Configure(ctx, t.name, config); err != nil {
		return changes, err
	}
	for _, d := range wrong {
		changes = append(changes, fmt.Sprintf("topic %s: %s = %s, was %s", t.name, d.config, d.want, orNone(d.have)))
	}
	return changes, nil
}

func orNone(s string) string { return cmp.Or(s, "not set") }
