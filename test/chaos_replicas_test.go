package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/testservices"
)

var replicaCases = []chaosCase{
	{"lanes-below-min-isr", false, lanesBelowMinISR, telling{line: "kafka refuses re-enqueued jobs"}},
}

// secondBroker is another broker in the cluster of a private Kafka, which may be killed and started again.
type secondBroker struct {
	t       testing.TB
	command []string
	process *exec.Cmd
}

// second makes a second broker, and starts it.
func (b *privateKafka) second(t testing.TB) *secondBroker {
	t.Helper()
	services := filepath.Join(filepath.Dir(filepath.Dir(b.script)), ".services")
	first, dir := filepath.Join(services, "stacks", b.stack, "kafka"), t.TempDir()
	settings, identity := properties(t, filepath.Join(first, "server.properties")), properties(t, filepath.Join(first, "data", "meta.properties"))
	libs, err := filepath.Glob(filepath.Join(services, "kafka-*-libs"))
	if err != nil || len(libs) != 1 {
		t.Fatalf("Kafka's libraries are %q: %v", libs, err)
	}
	bootstrap := readFile(t, filepath.Join(first, "data", "bootstrap.checkpoint"))
	data, at := filepath.Join(dir, "data"), testservices.FreePort(t)
	noError(t, os.Mkdir(data, 0o700))
	for name, text := range map[string]string{
		filepath.Join(data, "bootstrap.checkpoint"): bootstrap,
		filepath.Join(data, "meta.properties"): fmt.Sprintf("version=1\nnode.id=2\ndirectory.id=%s\ncluster.id=%s\n",
			"AAAAAAAAAAAAAAAAAAAA2A", identity["cluster.id"]),
		filepath.Join(dir, "server.properties"): fmt.Sprintf("process.roles=broker\nnode.id=2\ncontroller.quorum.voters=%s\n"+
			"listeners=PLAINTEXT://127.0.0.1:%d\nadvertised.listeners=PLAINTEXT://127.0.0.1:%d\ncontroller.listener.names=CONTROLLER\n"+
			"inter.broker.listener.name=PLAINTEXT\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"+
			"log.dirs=%s\nbroker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500\n",
			settings["controller.quorum.voters"], at, at, data),
	} {
		noError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	s := &secondBroker{t: t, command: []string{
		"java", "-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmx256m", "-XX:+UseSerialGC",
		"-Dlog4j2.configurationFile=file:" + filepath.Join(first, "log4j2.properties"),
		"-cp", filepath.Join(libs[0], "*"), "kafka.Kafka", filepath.Join(dir, "server.properties"),
	}}
	t.Cleanup(s.kill)
	s.start()
	return s
}

func (s *secondBroker) start() {
	s.t.Helper()
	s.process = exec.Command(s.command[0], s.command[1:]...)
	noError(s.t, s.process.Start())
}

func (s *secondBroker) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill() // it may have ended
		_ = s.process.Wait()
		s.process = nil
	}
}

// properties reads a file of lines KEY=VALUE.
func properties(t testing.TB, file string) map[string]string {
	t.Helper()
	text := readFile(t, file)
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	return values
}

// inSync is how many replicas of a partition are in sync.
func (c *chaos) inSync(topic string, partition int) int {
	ctx := c.soon()
	answer, err := c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil || len(answer.Topics) != 1 {
		return 0
	}
	for _, p := range answer.Topics[0].Partitions {
		if p.ID == partition {
			return len(p.Isr)
		}
	}
	return 0
}

// lanesBelowMinISR has half of the lanes lose a replica without which their leader may not acknowledge what is written to them. Jobs on
// their way to such a lane wait for it, since they may have been written. Later jobs of the campaign go to another one.
func lanesBelowMinISR(t *testing.T, c *chaos) {
	const lanes = 8
	broker := freshKafka(t, "")
	c.world(t, stackOptions{partitions: 6, lanes: lanes, brokers: broker.brokers})
	topic := requeue.LaneTopic(c.prefix)
	c.await(30*time.Second, "a topic of offsets, on the first broker", func() bool {
		ctx := c.soon()
		answer, err := c.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.prefix, Topics: map[string][]int{topic: {0}}})
		return err == nil && answer.Error == nil
	})
	second := broker.second(t)
	c.configure(topic, "min.insync.replicas", "2") // of those that have as many
	var moves []kafka.AlterPartitionReassignmentsRequestAssignment
	for lane := range lanes / 2 {
		moves = append(moves, kafka.AlterPartitionReassignmentsRequestAssignment{PartitionID: 2 * lane, BrokerIDs: []int{1, 2}})
	}
	c.await(60*time.Second, "a second replica", func() bool {
		ctx := c.soon()
		answer, err := c.client.AlterPartitionReassignments(ctx, &kafka.AlterPartitionReassignmentsRequest{
			Topic: topic, Assignments: moves, Timeout: 5 * time.Second,
		})
		return err == nil && answer.Error == nil && c.inSync(topic, 0) == 2 && c.inSync(topic, lanes-2) == 2
	})

	each := map[string]int{"fast": 8 * int(c.rate(200))}
	c.campaign("fast", c.rate(200))
	for i := range lanes {
		id := fmt.Sprint("waits-", i)
		c.campaign(id, 5)
		each[id] = c.jobs(100)
	}
	c.joinAll("one", "two")
	c.publish(mix(each))
	c.await(30*time.Second, "jobs in lanes", func() bool { return c.written(topic) > 0 })
	second.kill()
	c.await(30*time.Second, "a lost replica", func() bool { return c.inSync(topic, 0) == 1 })
	for i := range lanes {
		c.publish(further(fmt.Sprint("waits-", i), "later", c.jobs(100)))
	}
	c.await(30*time.Second, "a refusal", func() bool {
		return metricOf(c.up, "pacer_requeue_refusing_partitions") > 0
	})
	c.await(60*time.Second, "nothing in ingress but what waits for those lanes", func() bool {
		return c.openIn(c.ingress) <= int(metricOf(c.up, "pacer_requeue_held"))
	})
	second.start()
	c.await(60*time.Second, "the replica", func() bool { return c.inSync(topic, 0) == 2 })
	c.healed()
	for i := range lanes {
		c.setRate(fmt.Sprint("waits-", i), 200, 0)
	}
	c.delivered(90 * time.Second)
}
