package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
)

// brokerCases are about Kafka and the way to it.
var brokerCases = []chaosCase{
	{"kafka-cut", false, kafkaCut},
	{"kafka-silent", false, kafkaSilent},
	{"kafka-slow", false, kafkaSlow},
	{"broker-killed", false, brokerKilled},
	{"broker-restarted", false, brokerRestarted},
	{"broker-refuses-the-lane-produce", true, brokerRefuses},
}

// brokerLoad is two daemons with a fast campaign and one whose jobs wait in a lane; more are variables of their
// environment.
func (c *chaos) brokerLoad(more ...string) {
	c.t.Helper()
	c.load(6, map[string]float64{"fast": 200})
	c.campaign("waits", 10)
	c.publish(mix(map[string]int{"waits": c.jobs(400)}))
	c.join("one", more...)
	c.join("two", more...)
}

// release lets the jobs that wait in a lane go.
func (c *chaos) release() {
	c.t.Helper()
	c.setRate("waits", c.rate(200), 0)
}

// kafkaCut resets the connections to the broker for a while.
func kafkaCut(t *testing.T, c *chaos) {
	broker, network := proxiedKafka(t)
	c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
	c.brokerLoad("PACER_KAFKA_BROKERS=" + network.addr)
	c.arrived(0.3)
	c.outage(func() {
		network.cut()
		time.Sleep(3 * time.Second)
		network.heal()
	})
	c.release()
	c.delivered(60 * time.Second)
}

// kafkaSilent swallows the broker's answers for longer than the group waits for its members.
func kafkaSilent(t *testing.T, c *chaos) {
	broker, network := proxiedKafka(t)
	c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
	c.brokerLoad("PACER_KAFKA_BROKERS=" + network.addr)
	c.arrived(0.2)
	c.outage(func() {
		network.silence()
		time.Sleep(15 * time.Second)
		network.heal()
	})
	c.release()
	c.delivered(60 * time.Second)
}

// kafkaSlow makes the broker answer late, and then little at a time. No member leaves the group
// because of that.
func kafkaSlow(t *testing.T, c *chaos) {
	broker, network := proxiedKafka(t)
	c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
	c.brokerLoad("PACER_KAFKA_BROKERS=" + network.addr)
	network.delay(200*time.Millisecond, 150*time.Millisecond)
	c.arrived(0.4)
	network.heal()
	c.shared(groupRecovery, func() { // too narrow to read lanes ahead
		network.narrow(50)
		time.Sleep(3 * time.Second)
		network.heal()
	})
	c.healed()
	c.release()
	c.delivered(60 * time.Second)
}

// brokerKilled kills the broker with -9 and starts it again on its data.
func brokerKilled(t *testing.T, c *chaos) {
	broker := freshKafka(t, "")
	c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
	c.brokerLoad()
	c.arrived(0.3)
	c.outage(func() {
		noError(t, broker.kill())
		time.Sleep(2 * time.Second)
		noError(t, broker.start())
	})
	c.release()
	c.delivered(90 * time.Second)
}

// brokerRestarted stops the broker in order and starts it again.
func brokerRestarted(t *testing.T, c *chaos) {
	broker := freshKafka(t, "")
	c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
	c.brokerLoad()
	c.arrived(0.3)
	c.outage(func() {
		noError(t, broker.restart())
	})
	c.release()
	c.delivered(90 * time.Second)
}

// brokerRefuses has the broker refuse what is written to lanes: a compacted topic takes no record without a key. Nothing
// of it may be committed, and a campaign that needs no lane goes on.
func brokerRefuses(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	lanes := requeue.LaneTopic(c.prefix)
	c.configure(lanes, "cleanup.policy", "compact")
	c.brokerLoad()
	more := 0
	c.await(20*time.Second, "a refusal", func() bool {
		if c.up[0].metric("pacer_requeue_outage")+c.up[1].metric("pacer_requeue_outage") > 0 {
			return true
		}
		// The broker applies a setting some time after it has accepted it, and until then all jobs may be in lanes.
		c.publish(further("waits", fmt.Sprint("more-", more), 2))
		more++
		return false
	})
	before := c.written(lanes)
	time.Sleep(2 * time.Second)
	if n := c.written(lanes) - before; n > 0 {
		t.Fatalf("%d jobs were written to lanes that refuse", n)
	}
	held := c.held()
	accepted := c.receiver.acceptedIDs()
	for id := range c.published {
		if !held[id] && !accepted[id] {
			t.Errorf("%s was committed, and is neither in a lane nor delivered", id)
		}
	}
	c.configure(lanes, "cleanup.policy", "delete")
	c.healed()
	c.await(20*time.Second, "jobs in lanes", func() bool { return c.written(lanes) > before })
	c.release()
	c.delivered(60 * time.Second)
}

// configure sets a configuration of a topic.
func (c *chaos) configure(topic, name, value string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := c.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	if err == nil {
		err = answer.Resources[0].Error
	}
	if err != nil {
		c.t.Fatalf("set %s of %s: %v", name, topic, err)
	}
}
