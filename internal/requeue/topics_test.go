package requeue

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/brokertest"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

func TestDeviations(t *testing.T) {
	good := map[string]string{
		confCleanup: "delete", confRetentionTime: "-1", confRetentionBytes: "-1", confMaxMessage: "2000",
		confSegmentBytes: "16777216", confSegmentTime: "3600000",
	}
	lanes := ownedTopic{name: "lanes", retention: -1, maxMessage: 1000}
	large := ownedTopic{name: "lanes", retention: -1, maxMessage: 32 << 20}
	letters := ownedTopic{name: "dead", retention: 100, maxMessage: 1000}
	for name, c := range map[string]struct {
		topic ownedTopic
		have  map[string]string
		want  []string
	}{
		"as it must be":         {lanes, good, nil},
		"for ever, as some say": {lanes, with(with(good, confRetentionTime, "9223372036854775807"), confRetentionBytes, "9223372036854775807"), nil},
		"compacted":             {lanes, with(good, confCleanup, "compact"), []string{confCleanup}},
		"lanes expire":          {lanes, with(good, confRetentionTime, "604800000"), []string{confRetentionTime}},
		"lanes are bounded":     {lanes, with(good, confRetentionBytes, "1"), []string{confRetentionBytes}},
		"small records":         {lanes, with(good, confMaxMessage, "999"), []string{confMaxMessage}},
		"letters kept too long": {letters, with(good, confRetentionTime, "101"), nil},
		"letters kept for ever": {letters, good, nil},
		"letters expire early":  {letters, with(good, confRetentionTime, "99"), []string{confRetentionTime}},
		"nothing known": {lanes, nil, []string{
			confCleanup, confRetentionTime, confRetentionBytes, confMaxMessage, confSegmentBytes, confSegmentTime,
		}},
		"unclean elections":         {lanes, with(good, confUnclean, "true"), []string{confUnclean}},
		"unclean elections of dead": {letters, with(good, confUnclean, "true"), []string{confUnclean}},
		"clean elections":           {lanes, with(good, confUnclean, "false"), nil},
		"larger segments":           {lanes, with(good, confSegmentBytes, "134217728"), nil},
		"segments too large":        {lanes, with(good, confSegmentBytes, "1073741824"), []string{confSegmentBytes}},
		"segments kept too long":    {lanes, with(good, confSegmentTime, "604800000"), []string{confSegmentTime}},
		"segments of dead letters":  {letters, with(good, confSegmentBytes, "1073741824"), nil},
		"segments of large records": {large, with(with(good, confSegmentBytes, "268435456"), confMaxMessage, "33554432"), nil},
	} {
		var got []string
		for _, d := range c.topic.deviations(c.have) {
			got = append(got, d.config)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	out[key] = value
	return out
}

// checkTopicLife walks the owned topics through their life on any broker.
func checkTopicLife(t *testing.T, client *broker.Client, prefix, ingress string) {
	ctx := t.Context()
	spec := smallSpec(prefix, ingress, prefix+"absent")
	problems, err := CheckTopics(ctx, client, spec)
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 9 || problems[0] != "ingress topic "+prefix+"absent does not exist: create it, pacer never does" ||
		problems[1] != "topic "+prefix+"lanes does not exist: run pacer migrate up" {
		t.Errorf("before: %q", problems)
	}

	spec = smallSpec(prefix, ingress)
	changes, err := EnsureTopics(ctx, client, spec, nil)
	if err != nil || len(changes) != 8 {
		t.Fatalf("EnsureTopics: %q, %v", changes, err)
	}
	settleLayout(t, client, spec)
	expect(t, client, spec, nil)
	list, err := ListTopics(ctx, client, spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == ingress {
			continue
		}
		want := TopicStatus{Name: s.Name, Owned: true, Exists: true, Partitions: 4, Replicas: 1, Retention: -1, MaxMessage: 300_000 + headerBytes}
		if s.Name == LaneTopic(prefix) {
			want.Partitions = 8
		}
		if s.Name == DeadTopic(prefix) {
			want.Retention = 30 * 24 * time.Hour
		}
		if s.Name == ReplaysTopic(prefix) {
			want.Partitions, want.Retention = 1, 365*24*time.Hour
		}
		if s != want {
			t.Errorf("status %+v, want %+v", s, want)
		}
	}
	if changes, err = EnsureTopics(ctx, client, spec, nil); err != nil || len(changes) != 0 {
		t.Errorf("a second time: %q, %v", changes, err)
	}

	alter(t, client, LaneTopic(prefix), confRetentionTime, "1000")
	alter(t, client, TimerTopic(prefix, 5*time.Second), confMaxMessage, "1000")
	alter(t, client, TimerTopic(prefix, 30*time.Second), confSegmentBytes, "1073741824")
	expect(t, client, spec, []string{
		"topic " + prefix + "lanes: retention.ms is 1000 and must be -1, or waiting jobs are deleted: run pacer migrate up",
		"topic " + prefix + "timer.5s: max.message.bytes is 1000 and must be at least 365536: run pacer migrate up",
		"topic " + prefix + "timer.30s: segment.bytes is 1073741824 and must be at most 134217728, " +
			"or the disk of delivered jobs is not given back: run pacer migrate up",
	})
	spec.Lanes = 9
	if changes, err = EnsureTopics(ctx, client, spec, nil); err != nil || len(changes) != 4 {
		t.Errorf("repair: %q, %v", changes, err)
	}
	settleLayout(t, client, spec)
	expect(t, client, spec, nil)
	spec.Timers = slices.Delete(DefaultTimers(), 1, 2)
	expect(t, client, spec, nil) // it is empty
}

// expect checks the topics until the outcome is the wanted one: configurations spread with a delay.
func expect(t *testing.T, client *broker.Client, spec TopicSpec, want []string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("problems %q, want %q", got, want)
		}
	}()
	kafkatest.Eventually(t, "the problems", func() (is bool) {
		var err error
		if got, err = CheckTopics(t.Context(), client, spec); err != nil {
			t.Fatal(err)
		}
		return slices.Equal(got, want)
	})
}

// settleLayout waits until the transport knows all partitions.
func settleLayout(t *testing.T, client *broker.Client, spec TopicSpec) {
	t.Helper()
	kafkatest.Eventually(t, "all partitions", func() bool {
		list, err := ListTopics(t.Context(), client, spec)
		return err == nil && !slices.ContainsFunc(list, func(s TopicStatus) bool {
			return !s.Exists || strings.HasSuffix(s.Name, "lanes") && s.Partitions < spec.Lanes
		})
	})
}

func alter(t *testing.T, client *broker.Client, topic, config, value string) {
	t.Helper()
	err := client.Configure(t.Context(), topic, map[string]string{config: value})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTopicLife(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		client := brokertest.Cluster(t, kfake.SeedTopics(2, "jobs"))
		alter(t, client, "jobs", confMaxMessage, "300000")
		checkTopicLife(t, client, "t.", "jobs")
		return
	}
	brokers := testservices.Kafka(t)
	ingress := testservices.Topic(t, brokers, "requeue-jobs", 2, kafka.ConfigEntry{ConfigName: confMaxMessage, ConfigValue: "300000"})
	client := brokertest.Dial(t, broker.Options{Brokers: brokers})
	checkTopicLife(t, client, ownedPrefix(t, client), ingress)
}

// ownedPrefix returns a prefix of the test's own, whose topics are deleted when the test ends.
func ownedPrefix(t testing.TB, client *broker.Client) string {
	t.Helper()
	prefix := testservices.Unique("requeue") + "."
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		names := TopicSpec{Prefix: prefix, Results: true}.Names()
		if err := client.DeleteTopics(ctx, names); err != nil {
			t.Logf("delete topics: %v", err)
		}
	})
	return prefix
}

func TestTopicSpecNames(t *testing.T) {
	got := TopicSpec{Ingress: []string{"jobs"}, Timers: []time.Duration{time.Minute}}.Names()
	if want := []string{"jobs", "pacer.lanes", "pacer.timer.1m", "pacer.dead", "pacer.replays"}; !slices.Equal(got, want) {
		t.Errorf("names %q", got)
	}
	got = TopicSpec{Results: true, Prefix: "p."}.Names()
	if !slices.Contains(got, "p.results") || len(got) != 9 {
		t.Errorf("names with results %q", got)
	}
}

// Brokers that refuse the metadata of commits are named.
func TestCheckOfMetadataThatBrokersRefuse(t *testing.T) {
	for most, want := range map[string]int{"4095": 1, "4096": 0} {
		client := brokertest.Cluster(t, kfake.BrokerConfigs(map[string]string{"offset.metadata.max.bytes": most}))
		problems, err := CheckTopics(t.Context(), client, smallSpec("metadata.", "jobs"))
		problems = slices.DeleteFunc(problems, func(p string) bool { return !strings.Contains(p, "offset.metadata.max.bytes") })
		if len(problems) != want || err != nil {
			t.Errorf("%s: %q, %v", most, problems, err)
		}
	}
}

func TestTopicNames(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Second: "pacer.timer.5s", 30 * time.Second: "pacer.timer.30s", 5 * time.Minute: "pacer.timer.5m",
		30 * time.Minute: "pacer.timer.30m", 6 * time.Hour: "pacer.timer.6h", 60 * time.Second: "pacer.timer.1m",
		90 * time.Second: "pacer.timer.90s", 250 * time.Millisecond: "pacer.timer.250ms", 24 * time.Hour: "pacer.timer.24h",
	} {
		if got := TimerTopic("pacer.", d); got != want {
			t.Errorf("TimerTopic(%s) = %s, want %s", d, got, want)
		}
	}
}

// A job goes to the longest timer that does not end after it is due. Passed on from timer to timer, it comes back neither before it is due nor
// later than the shortest delay after it.
func TestPassingThroughTimersEndsOnTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delays := slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(1, 100_000),
			func(s int) time.Duration { return time.Duration(s) * time.Second }), 1, 6, rapid.ID[time.Duration]).Draw(t, "delays")))
		now := time.Unix(1_800_000_000, 0)
		due := now.Add(time.Duration(rapid.Int64Range(1, int64(100*time.Hour)).Draw(t, "left")))
		at := now
		for hops := 0; at.Before(due); hops++ {
			if hops > 400_000 {
				t.Fatalf("does not end")
			}
			delay := TimerFor(delays, at, due)
			if slices.ContainsFunc(delays, func(d time.Duration) bool { return d <= due.Sub(at) && d > delay }) || delay > max(due.Sub(at), delays[0]) {
				t.Fatalf("due in %s: timer %s of %s", due.Sub(at), delay, delays)
			}
			at = at.Add(delay)
		}
		if d := TimerFor(delays, now, time.Time{}); d != delays[0] {
			t.Fatalf("no due time: timer %s of %s", d, delays)
		}
		if late := at.Sub(due); late >= delays[0] {
			t.Fatalf("%s late with delays %s", late, delays)
		}
	})
}

func TestMissingRightsAreSaidOnce(t *testing.T) {
	spec := TopicSpec{Ingress: []string{"jobs"}, Results: true}.withDefaults()
	needs := spec.daemonNeeds()
	if len(needs) != len(spec.Names()) {
		t.Fatalf("%d topics need something, of %d", len(needs), len(spec.Names()))
	}
	missing := map[string][]broker.Operation{"jobs": {broker.OpRead}}
	for topic, operations := range needs {
		if slices.Contains(operations, broker.OpDelete) {
			missing[topic] = []broker.Operation{broker.OpWrite, broker.OpDelete}
		}
	}
	want := []string{
		"the user of kafka.sasl lacks Read on jobs: add these ACLs",
		"the user of kafka.sasl lacks Write, Delete on pacer.lanes, pacer.timer.30m, pacer.timer.30s, pacer.timer.5m, pacer.timer.5s, " +
			"pacer.timer.6h: add these ACLs",
	}
	if got := describeMissing(missing); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
