package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/requeue"
)

// brokerCases are about Kafka and the way to it.
var brokerCases = []chaosCase{
	{"kafka-cut", false, overKafka(0.3, kafkaCut), telling{line: "kafka does not answer as it should"}},
	{"kafka-silent", false, overKafka(0.2, kafkaSilent), telling{line: "kafka does not answer as it should"}},
	{"kafka-slow", false, overKafka(0, kafkaSlow), telling{}},
	{"broker-killed", false, withKafka(brokerKilled), telling{line: "kafka does not answer as it should"}},
	{"broker-restarted", false, withKafka((*privateKafka).restart), telling{line: "kafka does not answer as it should"}},
	{"broker-refuses-the-lane-produce", true, brokerRefuses, telling{line: "kafka refuses re-enqueued jobs"}},
}

// overKafka is a case whose network to the broker is damaged when a share of the jobs has arrived.
func overKafka(share float64, damage func(c *chaos, network *proxy)) func(*testing.T, *chaos) {
	return func(t *testing.T, c *chaos) {
		broker, network := proxiedKafka(t)
		c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
		c.brokerLoad("PACER_KAFKA_BROKERS=" + network.addr)
		c.arrived(share)
		damage(c, network)
		c.release()
		c.delivered(60 * time.Second)
	}
}

// withKafka is a case whose broker is down for a while.
func withKafka(damage func(broker *privateKafka)) func(*testing.T, *chaos) {
	return func(t *testing.T, c *chaos) {
		broker := freshKafka(t, "")
		c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
		c.brokerLoad()
		c.arrived(0.3)
		c.outage(func() { damage(broker) })
		c.release()
		c.delivered(90 * time.Second)
	}
}

// brokerLoad is two daemons with a fast campaign and one whose jobs wait in a lane; more are variables of their
// environment.
func (c *chaos) brokerLoad(more ...string) {
	c.t.Helper()
	c.load(6, map[string]float64{"fast": 200})
	c.waits()
	c.pair(more...)
}

// waits publishes jobs of a campaign that wait in a lane.
func (c *chaos) waits() {
	c.t.Helper()
	c.campaign("waits", 10)
	c.publish(mix(map[string]int{"waits": c.jobs(400)}))
}

// release lets the jobs that wait in a lane go.
func (c *chaos) release() {
	c.t.Helper()
	c.setRate("waits", c.rate(200), 0)
}

// kafkaCut resets the connections to the broker for a while.
func kafkaCut(c *chaos, network *proxy) {
	c.outage(func() { network.disturb(3*time.Second, network.cut) })
}

// kafkaSilent swallows the broker's answers for longer than the group waits for its members.
func kafkaSilent(c *chaos, network *proxy) {
	c.outage(func() { network.disturb(15*time.Second, network.silence) })
}

// kafkaSlow makes the broker answer late, and then little at a time. No member leaves the group because of that.
func kafkaSlow(c *chaos, network *proxy) {
	network.delay(200*time.Millisecond, 150*time.Millisecond)
	c.arrived(0.4)
	network.heal()
	c.shared(groupRecovery, func() { // too narrow to read lanes ahead
		network.disturb(3*time.Second, func() { network.narrow(50) })
	})
	c.healed()
}

// brokerKilled kills the broker with -9 and starts it again on its data.
func brokerKilled(broker *privateKafka) {
	broker.kill()
	time.Sleep(2 * time.Second)
	broker.start()
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
		if metricOf(c.up, "pacer_requeue_outage") > 0 {
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
func (s *stack) configure(topic, name, value string) {
	s.t.Helper()
	ctx := s.soon()
	noError(s.t, s.cluster.Configure(ctx, topic, map[string]string{name: value}))
}
