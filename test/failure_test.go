package test

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/testservices"
)

// TestWaitsForServices: nothing is there at the start, one after the other appears, and jobs flow; one Warn line each.
func TestWaitsForServices(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{})
	s.campaign("c", 100)
	topic := s.ingress + "-late"
	store := testservices.FreshRedis(t)
	store.Kill()
	d := s.start("one", "PACER_REDIS_ADDRS="+store.Addr, "PACER_KAFKA_TOPICS="+s.ingress+","+topic)
	time.Sleep(3 * time.Second)
	if d.get("/healthz") != 200 || d.get("/readyz") != 503 {
		t.Errorf("waiting: healthz %d, readyz %d", d.get("/healthz"), d.get("/readyz"))
	}
	if n := d.log.lines("level=WARN", "redis"); n != 1 {
		t.Errorf("%d Warn lines about redis\n%s", n, d.log)
	}
	store.Start(t)
	time.Sleep(3 * time.Second)
	if n := d.log.lines("level=WARN", topic); n != 1 {
		t.Errorf("%d Warn lines about the missing topic\n%s", n, d.log)
	}
	if _, err := s.client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: 1, ReplicationFactor: 1,
	}}}); err != nil {
		t.Fatal(err)
	}
	d.awaitReady(20 * time.Second)
	s.publish([]job{{campaign: "c", id: "1"}})
	s.await(10*time.Second, "the job", func() bool { return s.receiver.count("c") == 1 })
	d.stop()

	// No broker at the start.
	d = s.start("two", fmt.Sprintf("PACER_KAFKA_BROKERS=127.0.0.1:%d", testservices.FreePort(t)))
	time.Sleep(2 * time.Second)
	if d.get("/readyz") != 503 || d.log.lines("level=WARN") == 0 {
		t.Errorf("ready without a broker, or silent about it\n%s", d.log)
	}
	d.stop()
}

// TestKilledBroker: the broker is killed with -9 under load and started again on its data. No acknowledged record is lost, no job of two
// daemons, no result, and no record of a kafka sink. The network has swallowed answers and cut connections before.
func TestKilledBroker(t *testing.T) {
	t.Parallel()
	broker, network := proxiedKafka(t)
	load, loaded := loadKafkaSink(t, broker.brokers, network.addr)
	network.disturb(1500*time.Millisecond, network.silence)
	load.goesOn(t)
	network.disturb(300*time.Millisecond, network.cut)
	load.goesOn(t)
	s := newStack(t, stackOptions{partitions: 6, brokers: broker.brokers})
	told := newStack(t, stackOptions{partitions: 2, brokers: broker.brokers})
	told.withResults()
	s.campaign("c", 500)
	s.campaign("d", 100)
	told.campaign("c", 500)
	one, two := s.startTwo()
	teller := told.started("teller")
	jobs, toldOf := mix(map[string]int{"c": 4000, "d": 800}), mix(map[string]int{"c": 2500})
	s.publish(jobs)
	told.publish(toldOf)
	s.await(20*time.Second, "some jobs", func() bool { return s.receiver.count("") > 700 && told.receiver.count("") > 700 })
	since := s.receiver.now() - time.Second.Microseconds() // commits of a new group, on a busy machine
	broker.kill()
	if conn, err := net.Dial("tcp", broker.brokers[0]); err == nil {
		_ = conn.Close()
		t.Error("a killed broker answered")
	}
	time.Sleep(3 * time.Second)
	broker.start()
	back := s.receiver.now()
	told.cluster.Close()
	told.client.Transport.(*kafka.Transport).CloseIdleConnections() // to the broker that was killed
	told.losesNoResult(teller, toldOf)
	s.arrive(90*time.Second, "", len(jobs))
	t.Logf("first job %.1f s after the broker answered again", float64(s.during("", back, forever)[0].at-back)/1e6)
	uncommitted := s.between("", since, back)
	n, duplicates := s.receiver.accepted("")
	t.Logf("%d of %d jobs, %d duplicates", n, len(jobs), duplicates)
	s.withinBound("c", 500)
	s.withinBound("d", 100)
	if duplicates > uncommitted {
		t.Errorf("%d duplicates, more than the %d that arrived while nothing could be committed", duplicates, uncommitted)
	}
	one.stop()
	two.stop()
	load.end(t, broker.brokers, loaded)
}

// TestMemoryWithManyWaiting: jobs wait in Kafka for slow campaigns; the daemon stays small. Held in memory they would be
// more than it may have. TestFigureMemory has a million of them.
func TestMemoryWithManyWaiting(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 6})
	s.manyWaiting(300_000)
}

// manyWaiting makes a daemon put a number of jobs aside, and asserts that it continues to send, and its
// memory.
func (s *stack) manyWaiting(n int) {
	s.t.Helper()
	s.campaign("slow", 5)
	s.campaign("crawl", 1)
	d := s.started("one")
	before := s.receiver.count("")
	payload := bytes.Repeat([]byte("p"), 100)
	for start := 0; start < n; start += 100_000 {
		jobs := make([]job, 100_000)
		for i := range jobs {
			id := "slow"
			if i%2 == 1 {
				id = "crawl"
			}
			jobs[i] = job{campaign: id, id: fmt.Sprintf("%s-%d", id, start+i), payload: payload}
		}
		s.publish(jobs)
	}
	s.await(2*time.Minute, "the backlog to be put aside", func() bool { return s.written(requeue.LaneTopic(s.prefix)) > int64(n*9/10) })
	sent := s.receiver.count("")
	if sent < before+5 { // it takes some seconds
		s.t.Errorf("%d jobs were sent while the backlog was put aside", sent-before)
	}
	s.await(20*time.Second, "more jobs, now that the backlog is put aside", func() bool { return s.receiver.count("") >= sent+10 })
	s.withinBound("slow", 5)
	s.withinBound("crawl", 1)
	peak := d.peakRSS()
	s.t.Logf("peak RSS %d MiB with %d jobs waiting", peak, n)
	if peak > 256 {
		s.t.Errorf("peak RSS %d MiB, above 256", peak)
	}
	d.stop()
}
