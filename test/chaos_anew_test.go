package test

import (
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
)

// anewCases are about topics that are made anew under the same name.
var anewCases = []chaosCase{
	{"ingress-made-anew", false, ingressAnew},
	{"timers-made-anew", false, timersAnew},
}

// ingressAnew deletes the topic of ingress and makes it anew, while jobs are sent from a lane. The new one's offsets are
// those of jobs that were delivered before.
func ingressAnew(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 4})
	c.campaign("waits", c.rate(30))
	c.publish(further("waits", "before", c.jobs(600)))
	c.join("one")
	c.join("two")
	c.await(30*time.Second, "an empty ingress", func() bool { return c.openIn(c.ingress) == 0 })
	c.jitter()
	c.anew(c.ingress, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "-1"})
	c.healed()
	c.load(5, map[string]float64{"fast": 200})
	c.publish(further("waits", "after", c.jobs(100)))
	c.setRate("waits", c.rate(200), 0)
	c.delivered(90 * time.Second)
}

// timersAnew deletes the timers and makes them anew, after jobs have waited in them, and while others are sent.
func timersAnew(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 4, settings: "pacing: {max_open_age: 1s}"})
	c.timers("500ms", "2s")
	c.campaign("later", c.rate(100))
	due := func() kafka.Header { return atTime("pacer-not-before", time.Now().Add(6*time.Second)) }
	c.publish(withHeaders(further("later", "before", c.jobs(100)), due()))
	c.join("one")
	c.join("two")
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	partitions := len(c.topics(ctx)[topic])
	if _, err := c.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}}); err != nil {
		c.t.Fatalf("delete %s: %v", topic, err)
	}
	c.await(20*time.Second, topic+" to be made anew", func() bool {
		answer, err := c.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: config,
		}}})
		return err == nil && answer.Errors[topic] == nil
	})
	c.await(20*time.Second, topic+" to have leaders", func() bool {
		answer, err := c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != partitions {
			return false
		}
		for _, p := range answer.Topics[0].Partitions {
			if p.Error != nil || p.Leader.Port == 0 {
				return false
			}
		}
		return true
	})
}

// configOf is what a topic's own configuration sets.
func (c *chaos) configOf(topic string) (entries []kafka.ConfigEntry) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
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
