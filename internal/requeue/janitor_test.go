package requeue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/prototest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/pacer/pacer/internal/harness"
)

func TestDeleteRecordsIsSpelledRight(t *testing.T) {
	for _, version := range []int16{0, 1} {
		prototest.TestRequest(t, version, &deleteRequest{TimeoutMs: 5000, Topics: []deleteTopic{
			{Topic: "lanes", Partitions: []deletePartition{{Partition: 3, Offset: 1 << 40}, {Partition: 7, Offset: 1}}},
			{Topic: "timer", Partitions: []deletePartition{{Partition: 0, Offset: 5}}},
		}})
		prototest.TestResponse(t, version, &deleteResponse{ThrottleTimeMs: 7, Topics: []deletedTopic{
			{Topic: "lanes", Partitions: []deletedPartition{{Partition: 3, LowWatermark: 9, ErrorCode: 1}}},
		}})
	}
}

// fill writes n records to each partition of a topic.
func fill(t testing.TB, client *kafka.Client, topic string, partitions, n int) {
	t.Helper()
	b, err := newBroker(client)
	if err != nil {
		t.Fatal(err)
	}
	for id := range partitions {
		records := make([]kafka.Record, n)
		for i := range records {
			records[i].Value = kafka.NewBytes([]byte("payload"))
		}
		batch := &recordBatch{to: partition{topic, id}, records: records}
		eventually(t, "the records are written", func() bool {
			b.send(t.Context(), []*recordBatch{batch})
			return batch.err == nil
		})
	}
}

// beginning is the earliest offset of a partition.
func beginning(t testing.TB, client *kafka.Client, topic string, id int) int64 {
	t.Helper()
	answer, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(id)}},
	})
	if err == nil {
		err = answer.Topics[topic][0].Error
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Topics[topic][0].FirstOffset
}

// sweeper is a janitor at work.
type sweeper struct {
	*Janitor
	logs *logBook
	stop func()
}

func startJanitor(t testing.TB, client *kafka.Client, sweep time.Duration) *sweeper {
	t.Helper()
	s := &sweeper{logs: &logBook{}}
	var err error
	if s.Janitor, err = NewJanitor(JanitorOptions{
		Client: client, Sweep: sweep, Logger: s.logs.logger(), Registerer: prometheus.NewRegistry(),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	s.stop = func() {
		cancel()
		if !stopped {
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		stopped = true
	}
	t.Cleanup(s.stop)
	return s
}

func (s *sweeper) removed(t testing.TB) float64 {
	t.Helper()
	var m dto.Metric
	if err := s.deleted.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// waiting is how many partitions it was told of and has not done.
func (s *sweeper) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.passed)
}

// checkJanitor removes what it is told to from two topics, and nothing else.
func checkJanitor(t *testing.T, client *kafka.Client, lanes, timer string) {
	fill(t, client, lanes, 4, 100)
	fill(t, client, timer, 2, 50)
	s := startJanitor(t, client, 20*time.Millisecond)
	s.Passed(lanes, 0, 100)
	s.Passed(lanes, 1, 40)
	s.Passed(lanes, 2, 0)
	s.Passed(timer, 1, 50)
	begins := func(topic string, want ...int64) func() bool {
		return func() bool {
			for id, offset := range want {
				if beginning(t, client, topic, id) != offset {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "the lanes are swept", begins(lanes, 100, 40, 0, 0))
	eventually(t, "the timer is swept", begins(timer, 0, 50))
	eventually(t, "nothing is left to do", func() bool { return s.waiting() == 0 })
	if n := s.removed(t); n != 190 {
		t.Errorf("%v counted, 190 were removed", n)
	}
	s.Passed(lanes, 1, 40) // again: nothing to do
	s.Passed(lanes, 3, 99)
	eventually(t, "more is swept", begins(lanes, 100, 40, 0, 99))
	s.Passed(lanes, 2, 101) // beyond the end: of a topic that was made anew
	eventually(t, "nothing is left to do", func() bool { return s.waiting() == 0 })
	if !begins(lanes, 100, 40, 0, 99)() {
		t.Error("a partition was swept beyond its end")
	}
	if n := s.removed(t); n != 289 {
		t.Errorf("%v counted, 289 were removed", n)
	}
	s.stop()
	if n := s.logs.count("WARN") + s.logs.count("ERROR"); n != 0 {
		t.Errorf("%d warnings: %q", n, s.logs.lines)
	}
}

func TestJanitor(t *testing.T) {
	brokers := harness.Kafka(t)
	checkJanitor(t, dial(t, brokers), harness.Topic(t, brokers, "janitor-lanes", 4), harness.Topic(t, brokers, "janitor-timer", 2))
}

// With several brokers, each is asked for what it leads.
func TestJanitorOnSeveralBrokers(t *testing.T) {
	cluster, client := fakeCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "lanes"), kfake.SeedTopics(2, "timer"))
	requests := make(chan int, 1000)
	cluster.ControlKey(int16(kmsg.DeleteRecords), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		n := 0
		for _, topic := range r.(*kmsg.DeleteRecordsRequest).Topics {
			n += len(topic.Partitions)
		}
		requests <- n
		return nil, nil, false
	})
	checkJanitor(t, client, "lanes", "timer")
	most := 0
	for len(requests) > 0 {
		most = max(most, <-requests)
	}
	if most < 1 || most > 3 {
		t.Errorf("a broker was asked for %d partitions", most)
	}
}

// What was said last is done when the janitor ends.
func TestJanitorSweepsAtTheEnd(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(1, "lanes"))
	fill(t, client, "lanes", 1, 10)
	s := startJanitor(t, client, time.Hour)
	s.Passed("lanes", 0, 7)
	s.stop()
	if at := beginning(t, client, "lanes", 0); at != 7 {
		t.Errorf("begins at %d", at)
	}
}

// What was told of a partition that has gone elsewhere is not done much later: its topic may have been made anew.
func TestJanitorForgetsWhatNobodyRepeats(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(2, "lanes"))
	fill(t, client, "lanes", 2, 10)
	j, err := NewJanitor(JanitorOptions{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	j.Passed("lanes", 0, 10)
	j.Passed("lanes", 1, 10)
	lost := j.passed[partition{"lanes", 0}]
	lost.at = lost.at.Add(-wordHolds)
	j.passed[partition{"lanes", 0}] = lost
	j.sweepOnce(t.Context())
	if kept, swept := beginning(t, client, "lanes", 0), beginning(t, client, "lanes", 1); kept != 0 || swept != 10 || len(j.passed) != 0 {
		t.Errorf("they begin at %d and %d; told: %v", kept, swept, j.passed)
	}
}

// answering has every partition refused with an error for as long as it says so.
func answering(cluster *kfake.Cluster, code func() int16) {
	cluster.ControlKey(int16(kmsg.DeleteRecords), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		c := code()
		if c == 0 {
			return nil, nil, false
		}
		req := r.(*kmsg.DeleteRecordsRequest)
		answer := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
		for _, topic := range req.Topics {
			out := kmsg.NewDeleteRecordsResponseTopic()
			out.Topic = topic.Topic
			for _, p := range topic.Partitions {
				one := kmsg.NewDeleteRecordsResponseTopicPartition()
				one.Partition, one.ErrorCode = p.Partition, c
				out.Partitions = append(out.Partitions, one)
			}
			answer.Topics = append(answer.Topics, out)
		}
		return answer, nil, true
	})
}

// A broker that does not let us is a warning, once; a leader that moves is none. Both are tried again.
func TestJanitorIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		code  int16
		warns int
	}{
		"by its rights": {kerr.TopicAuthorizationFailed.Code, 1},
		"by a move":     {kerr.NotLeaderForPartition.Code, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, client := fakeCluster(t, kfake.SeedTopics(1, "lanes"))
			fill(t, client, "lanes", 1, 10)
			asked, over := make(chan struct{}, 1000), make(chan struct{})
			answering(cluster, func() int16 {
				select {
				case <-over:
					return 0
				default:
					asked <- struct{}{}
					return c.code
				}
			})
			s := startJanitor(t, client, 10*time.Millisecond)
			s.Passed("lanes", 0, 10)
			for range 3 {
				<-asked
			}
			if n := s.logs.count("WARN"); n != c.warns {
				t.Errorf("%d warnings: %q", n, s.logs.lines)
			}
			close(over)
			eventually(t, "it is done", func() bool { return s.waiting() == 0 })
			if n := s.logs.count("INFO"); n != c.warns {
				t.Errorf("%d lines say that it is over: %q", n, s.logs.lines)
			}
			if at := beginning(t, client, "lanes", 0); at != 10 {
				t.Errorf("begins at %d", at)
			}
		})
	}
}

// A broker that does not know the request is asked nothing, and one line says so.
func TestJanitorWithoutTheRequest(t *testing.T) {
	versions := kversion.V3_0_0()
	versions.SetMaxKeyVersion(int16(kmsg.DeleteRecords), -1)
	_, client := fakeCluster(t, kfake.SeedTopics(1, "lanes"), kfake.MaxVersions(versions))
	fill(t, client, "lanes", 1, 10)
	s := startJanitor(t, client, 5*time.Millisecond)
	s.Passed("lanes", 0, 10)
	eventually(t, "the line", func() bool { return s.logs.count("INFO") > 0 })
	time.Sleep(50 * time.Millisecond)
	s.stop()
	if n := s.logs.count("INFO") + s.logs.count("WARN"); n != 1 {
		t.Errorf("%d lines: %q", n, s.logs.lines)
	}
}

func TestJanitorOptions(t *testing.T) {
	if _, err := NewJanitor(JanitorOptions{}); err == nil {
		t.Error("made without a client")
	}
	_, client := fakeCluster(t)
	if _, err := NewJanitor(JanitorOptions{Client: client, Sweep: time.Nanosecond}); err == nil {
		t.Error("made to sweep all the time")
	}
	reg := prometheus.NewRegistry()
	if _, err := NewJanitor(JanitorOptions{Client: client, Registerer: reg}); err != nil {
		t.Error(err)
	}
	var twice prometheus.AlreadyRegisteredError
	if _, err := NewJanitor(JanitorOptions{Client: client, Registerer: reg}); !errors.As(err, &twice) {
		t.Errorf("registered twice: %v", err)
	}
}
