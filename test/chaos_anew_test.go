package test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/retry"
)

// anewCases are about topics that are made anew under the same name, and logs that lose their end.
var anewCases = []chaosCase{
	{"ingress-made-anew", false, ingressAnew, telling{line: "the topic was made anew", metric: "pacer_offset_resets_total"}},
	{"lanes-made-anew", false, lanesAnew, telling{line: "the topic was made anew", metric: "pacer_offset_resets_total"}},
	{"timers-made-anew", false, timersAnew, telling{line: "the topic was made anew", metric: "pacer_offset_resets_total"}},
	{"dead-letters-made-anew", false, deadLettersAnew, telling{line: "kafka refuses re-enqueued jobs"}},
	{"logs-truncated", false, logsTruncated, telling{line: "the log has lost its last records", metric: "pacer_log_lost_records_total"}},
}

// ingressAnew deletes the topic of ingress and makes it anew, while jobs are sent from a lane. The new one's offsets are
// those of jobs that were delivered before.
func ingressAnew(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 4})
	c.campaign("waits", c.rate(30))
	c.publish(further("waits", "before", c.jobs(600)))
	c.joinAll("one", "two")
	c.await(30*time.Second, "an empty ingress", func() bool { return c.openIn(c.ingress) == 0 })
	c.jitter()
	c.anew(c.ingress, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "-1"})
	c.healed()
	c.load(5, map[string]float64{"fast": 200})
	c.publish(further("waits", "after", c.jobs(100)))
	c.setRate("waits", c.rate(200), 0)
	c.delivered(90 * time.Second)
}

// lanesAnew deletes the topic of lanes and makes it anew, three seconds later, while three daemons send directly, from lanes, and write
// to them. Unsent jobs of the old lanes are gone.
func lanesAnew(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 4})
	c.campaign("waits", c.rate(20))
	c.campaign("direct", c.rate(60))
	c.campaign("overflows", c.rate(20))
	load := map[string]float64{"direct": c.rate(40), "overflows": c.rate(30)}
	lanes := requeue.LaneTopic(c.prefix)
	old := c.tail(lanes)
	c.publish(further("waits", "before", c.jobs(300)))
	c.joinAll("one", "two", "three")
	c.feed("before", c.seconds(4), load)
	config := c.configOf(lanes)
	c.shared(groupRecovery, func() {
		c.feed("last", time.Second, load)
		c.remove(lanes)
		maps.Copy(c.gone, old.end())
		c.feed("without", 3*time.Second, load)
		open := map[string]bool{}
		c.eachOpenOf(t.Context(), map[string][]int{c.ingress: c.topics(t.Context())[c.ingress]}, func(_ string, r delivery.Record) {
			open[r.Header("pacer-job-id")] = true
		})
		for id := range c.published { // what was written to the lanes just before is not seen in time from outside
			if strings.HasPrefix(id, "last-") && !open[id] {
				c.gone[id] = true
			}
		}
		c.create(lanes, c.bystander.lane+1, config...)
		c.bystander.refill(c)
	})
	c.healed()
	c.feed("after", c.seconds(4), load)
	c.publish(further("waits", "after", c.jobs(100)))
	c.delivered(2 * time.Minute)
	unsent := 0
	accepted := c.receiver.acceptedIDs()
	for id := range c.gone {
		if !accepted[id] {
			unsent++
		}
	}
	t.Logf("%d jobs were in the old lanes, %d of them were not sent", len(c.gone), unsent)
	if unsent == 0 {
		t.Error("nothing waited in the old lanes")
	}
}

// deadLettersAnew deletes the dead letters and makes them anew, three seconds later, while jobs are refused. Those that are
// refused then have their letters in the new topic, where they can be listed, shown and replayed.
func deadLettersAnew(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 4})
	c.campaign("some", c.rate(60))
	isRefused := func(a arrival) bool { return strings.HasSuffix(a.id, "5") }
	c.receiver.fails(http.StatusGone, isRefused)
	load := map[string]float64{"some": c.rate(40)}
	letters := requeue.DeadTopic(c.prefix)
	old := c.tail(letters)
	c.joinAll("one", "two", "three")
	c.feed("before", c.seconds(3), load)
	const replayed = 10 // what is remembered of them must not stand for letters of the new topic
	c.await(30*time.Second, "an end of each job, and all letters to be seen", func() bool {
		n, _ := c.receiver.accepted("")
		written := int(c.written(letters))
		return written > 2*replayed && n+written == len(c.published) && old.count() == written
	})
	c.receiver.answers(nil)
	accepted, _ := c.receiver.accepted("")
	c.run("dead", "replay", "--limit", strconv.Itoa(replayed))
	c.await(30*time.Second, "the replayed jobs", func() bool { n, _ := c.receiver.accepted(""); return n == accepted+replayed })
	c.receiver.fails(http.StatusGone, isRefused)
	config, partitions := c.configOf(letters), len(c.topics(t.Context())[letters])
	c.remove(letters)
	maps.Copy(c.gone, old.end())
	c.feed("without", 3*time.Second, load)
	c.create(letters, partitions, config...)
	c.healed()
	c.feed("after", c.seconds(3), load)
	refused := 0
	for id := range c.published {
		if strings.HasSuffix(id, "5") && !c.gone[id] {
			refused++
		}
	}
	c.await(60*time.Second, "the letters of all other jobs that are refused", func() bool { return c.written(letters) >= int64(refused) })
	c.await(60*time.Second, "all others", func() bool {
		n, _ := c.receiver.accepted("")
		return n == len(c.published)-refused-len(c.gone)+replayed
	})
	t.Logf("%d letters were in the old topic, %d are in the new one", len(c.gone), c.written(letters))
	var listed []struct {
		JobID string `json:"job_id"`
		Place string `json:"place"`
	}
	c.unmarshal(c.run("dead", "list", "--campaign", "some", "--since", "1h", "--limit", "0", "--json"), &listed)
	if len(listed) != refused {
		t.Fatalf("%d letters are listed, want %d", len(listed), refused)
	}
	if out := c.run("dead", "show", listed[0].Place); !strings.Contains(out, listed[0].JobID) {
		t.Errorf("dead show printed\n%s", out)
	}
	c.receiver.answers(nil)
	c.run("dead", "replay", "--campaign", "some")
	c.replayed = true
	c.delivered(60 * time.Second)
}

// logsTruncated kills the broker, which comes back without the last records of ingress and of the lanes, as after an unclean election.
// All of those were delivered. Later records have the new log's offsets.
func logsTruncated(t *testing.T, c *chaos) {
	const partitions, lanes = 2, 4
	kafkas := freshKafka(t, "")
	c.world(t, stackOptions{partitions: partitions, lanes: lanes, brokers: kafkas.brokers})
	c.campaign("fast", c.rate(200))
	c.campaign("waits", c.rate(50))
	c.publish(mix(map[string]int{"fast": c.jobs(400), "waits": c.jobs(400)}))
	c.joinAll("one", "two", "three")
	c.delivered(60 * time.Second)
	time.Sleep(2 * commitLag)
	topics := []string{c.ingress, requeue.LaneTopic(c.prefix)}
	before := c.ends(topics...)
	lost := int64(0)
	c.outage(func() {
		kafkas.kill()
		for p := range partitions {
			kafkas.truncate(t, fmt.Sprintf("%s-%d", topics[0], p))
		}
		for p := range lanes {
			kafkas.truncate(t, fmt.Sprintf("%s-%d", topics[1], p))
		}
		kafkas.start()
		c.await(20*time.Second, "the broker's logs", func() bool { return c.ends(topics...) >= 0 })
		lost = before - c.ends(topics...)
		t.Logf("%d of %d records are lost", lost, before)
		if lost <= 0 {
			t.Error("no log had anything to lose")
		}
	})
	c.await(30*time.Second, "the daemons to go on at the ends of the logs", func() bool {
		return metricOf(c.up, "pacer_log_lost_records_total") >= float64(lost)
	})
	c.publish(further("fast", "after", c.jobs(300)))
	c.publish(further("waits", "after", c.jobs(300)))
	c.delivered(2 * time.Minute)
}

// ends is the sum of the ends of topics' logs, without the bystander's; negative while one does not answer.
func (c *chaos) ends(topics ...string) int64 {
	c.t.Helper()
	ctx := c.soon()
	asked := c.topics(ctx)
	maps.DeleteFunc(asked, func(topic string, _ []int) bool { return !slices.Contains(topics, topic) })
	lanes := requeue.LaneTopic(c.prefix)
	asked[lanes] = slices.DeleteFunc(asked[lanes], func(p int) bool { return p == c.bystander.lane })
	_, ends, err := c.stack.offsets(ctx, asked)
	if err != nil || len(asked) != len(topics) {
		return -1
	}
	return ends
}

// truncate cuts the last third off the log of a partition of a broker that does not run. The broker drops the record batch
// that is cut through when it starts.
func (b *privateKafka) truncate(t *testing.T, partition string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(b.script), "..", ".services", "stacks", b.stack, "kafka", "data", partition, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log of %s: %v", partition, err)
	}
	last := logs[len(logs)-1]
	info, err := os.Stat(last)
	noError(t, err)
	noError(t, os.Truncate(last, info.Size()*2/3))
	for _, index := range []string{".index", ".timeindex"} {
		_ = os.Remove(strings.TrimSuffix(last, ".log") + index)
	}
}

// timersAnew deletes the timers and makes them anew, after jobs have waited in them, and while others are sent.
func timersAnew(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 4, settings: "pacing: {max_open_age: 1s}"})
	c.timers("500ms", "2s")
	c.campaign("later", c.rate(100))
	due := func() kafka.Header { return atTime("pacer-not-before", time.Now().Add(6*time.Second)) }
	c.publish(withHeaders(further("later", "before", c.jobs(100)), due()))
	c.joinAll("one", "two")
	c.delivered(60 * time.Second)
	c.load(15, map[string]float64{"fast": 200})
	c.await(20*time.Second, "the first fast jobs", func() bool { return c.receiver.count("fast") > 100 })
	for _, delay := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
		topic := requeue.TimerTopic(c.prefix, delay)
		c.anew(topic, c.configOf(topic)...)
	}
	c.healed()
	c.publish(withHeaders(further("later", "after", c.jobs(100)), due()))
	c.delivered(90 * time.Second)
}

// anew deletes a topic and makes it again with as many partitions.
func (c *chaos) anew(topic string, config ...kafka.ConfigEntry) {
	c.t.Helper()
	partitions := len(c.topics(context.Background())[topic])
	c.remove(topic)
	c.create(topic, partitions, config...)
}

// remove deletes a topic.
func (c *chaos) remove(topic string) {
	c.t.Helper()
	ctx := c.soon()
	noError(c.t, c.cluster.DeleteTopics(ctx, []string{topic}))
}

// create makes a topic, which may not be deleted yet everywhere, and waits until its replicas answer.
func (c *chaos) create(topic string, partitions int, config ...kafka.ConfigEntry) {
	c.t.Helper()
	ctx := c.soon()
	c.await(20*time.Second, topic+" to be made anew", func() bool {
		answer, err := c.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: config,
		}}})
		return err == nil && answer.Errors[topic] == nil
	})
	c.await(20*time.Second, topic+" to have leaders", func() bool {
		made := c.topics(ctx)[topic]
		_, _, err := c.stack.offsets(ctx, map[string][]int{topic: made})
		return err == nil && len(made) == partitions
	})
}

// feed publishes jobs of campaigns at rates, a tenth of a second's worth at a time.
func (c *chaos) feed(word string, lasts time.Duration, rates map[string]float64) {
	c.t.Helper()
	jobs := map[string][]job{}
	for campaign, rate := range rates {
		jobs[campaign] = further(campaign, word, int(rate*lasts.Seconds()))
	}
	began := time.Now()
	for passed := time.Duration(0); passed < lasts; time.Sleep(100 * time.Millisecond) {
		passed = min(time.Since(began), lasts)
		var due []job
		for campaign, rate := range rates {
			list := jobs[campaign]
			n := len(list) - int(rate*(lasts-passed).Seconds())
			due, jobs[campaign] = append(due, list[:max(n, 0)]...), list[max(n, 0):]
		}
		if len(due) > 0 {
			c.publish(due)
		}
	}
}

// tailed collects the jobs in a topic while they are written.
type tailed struct {
	stop func()
	mu   sync.Mutex
	ids  map[string]bool
}

// tail collects the jobs in a topic, of any campaign but the bystander, until end is called.
func (c *chaos) tail(topic string) *tailed {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	seen := &tailed{ids: map[string]bool{}, stop: func() { cancel(); readers.Wait() }}
	c.t.Cleanup(seen.stop)
	for _, p := range c.topics(ctx)[topic] {
		readers.Go(func() {
			for next := int64(0); ctx.Err() == nil; {
				out, err := c.cluster.Fetch(ctx, broker.FetchRequest{
					Partition: broker.Partition{Topic: topic, ID: p}, Offset: next, MaxBytes: 1 << 20, MaxWait: 500 * time.Millisecond,
				}, seen.note)
				if next = out.Next; err != nil {
					_ = retry.Sleep(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	return seen
}

func (s *tailed) note(r *delivery.Record) error {
	if r.Header("pacer-campaign") != bystanderID {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ids[r.Header("pacer-job-id")] = true
	}
	return nil
}

// count is how many jobs were seen so far.
func (s *tailed) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

// end returns what was collected.
func (s *tailed) end() map[string]bool {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids
}

// configOf is what a topic's own configuration sets.
func (c *chaos) configOf(topic string) (entries []kafka.ConfigEntry) {
	c.t.Helper()
	ctx := c.soon()
	answer, err := c.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	if err != nil {
		c.t.Fatalf("configuration of %s: %v", topic, err)
	}
	const ofTopic = 1
	for _, r := range answer.Resources {
		for _, e := range r.ConfigEntries {
			if e.ConfigSource == ofTopic {
				entries = append(entries, kafka.ConfigEntry{ConfigName: e.ConfigName, ConfigValue: e.ConfigValue})
			}
		}
	}
	return entries
}
