package consumer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// fill writes n records to each partition of a topic.
func fill(t testing.TB, client *broker.Client, topic string, partitions, n int) {
	t.Helper()
	p := broker.NewProducer(broker.ProducerOptions{Client: client})
	for id := range partitions {
		if _, err := p.PublishTo(t.Context(), []partition{{Topic: topic, ID: id}}, broker.All(make([]delivery.Record, n)), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// beginning is the earliest offset of a partition.
func beginning(t testing.TB, client *broker.Client, topic string, id int) int64 {
	t.Helper()
	first, _, err := client.Bounds(t.Context(), partition{Topic: topic, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// trim tells the janitor of a partition.
func (s *sweeper) trim(topic string, id int, before int64) {
	at := partition{Topic: topic, ID: id}
	s.Trim(at, topicOf(s.client, at), before)
}

// topicOf is the id of the topic of a partition, where it can be asked for.
func topicOf(client *broker.Client, at partition) delivery.TopicID {
	identity, _ := client.IdentityOf(context.Background(), at)
	return identity
}

func janitorCluster(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *broker.Client) {
	cluster := inProcess(t, opts...)
	return cluster, newBroker(t, cluster.ListenAddrs())
}

// sweeper is a janitor at work.
type sweeper struct {
	*Janitor
	logs *kafkatest.LogBook
	stop func()
}

func startJanitor(t testing.TB, client *broker.Client, sweep time.Duration) *sweeper {
	t.Helper()
	s := &sweeper{logs: &kafkatest.LogBook{}}
	s.Janitor = NewJanitor(client, s.logs.Logger(), prometheus.NewRegistry())
	s.sweep = sweep
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
	return len(s.marks)
}

// checkJanitor removes what it is told to from two topics, and nothing else.
func checkJanitor(t *testing.T, client *broker.Client, lanes, timer string) {
	fill(t, client, lanes, 4, 100)
	fill(t, client, timer, 2, 50)
	s := startJanitor(t, client, 20*time.Millisecond)
	s.trim(lanes, 0, 100)
	s.trim(lanes, 1, 40)
	s.trim(lanes, 2, 0)
	s.trim(timer, 1, 50)
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
	kafkatest.Eventually(t, "the lanes are swept", begins(lanes, 100, 40, 0, 0))
	kafkatest.Eventually(t, "the timer is swept", begins(timer, 0, 50))
	kafkatest.Eventually(t, "nothing is left to do", func() bool { return s.waiting() == 0 })
	if n := s.removed(t); n != 190 {
		t.Errorf("%v counted, 190 were removed", n)
	}
	s.trim(lanes, 1, 40) // again: nothing to do
	s.trim(lanes, 3, 99)
	kafkatest.Eventually(t, "more is swept", begins(lanes, 100, 40, 0, 99))
	s.trim(lanes, 2, 101) // beyond the end: of a topic that was made anew
	kafkatest.Eventually(t, "nothing is left to do", func() bool { return s.waiting() == 0 })
	if !begins(lanes, 100, 40, 0, 99)() {
		t.Error("a partition was swept beyond its end")
	}
	if n := s.removed(t); n != 289 {
		t.Errorf("%v counted, 289 were removed", n)
	}
	s.stop()
	if n := s.logs.Count("WARN") + s.logs.Count("ERROR"); n != 0 {
		t.Errorf("%d warnings: %q", n, s.logs.Lines(""))
	}
}

func TestJanitor(t *testing.T) {
	brokers := testservices.Kafka(t)
	checkJanitor(t, newBroker(t, brokers), testservices.Topic(t, brokers, "janitor-lanes", 4), testservices.Topic(t, brokers, "janitor-timer", 2))
}

// With several brokers, each is asked for what it leads.
func TestJanitorOnSeveralBrokers(t *testing.T) {
	cluster, client := janitorCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "lanes"), kfake.SeedTopics(2, "timer"))
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

// The last low watermark is applied when the janitor ends.
func TestJanitorSweepsAtTheEnd(t *testing.T) {
	_, client := janitorCluster(t, kfake.SeedTopics(1, "lanes"))
	fill(t, client, "lanes", 1, 10)
	s := startJanitor(t, client, time.Hour)
	s.trim("lanes", 0, 7)
	s.stop()
	if at := beginning(t, client, "lanes", 0); at != 7 {
		t.Errorf("begins at %d", at)
	}
}

// The low watermark of a partition that has gone elsewhere is not applied much later: its topic may have been made anew.
func TestJanitorForgetsWhatNobodyRepeats(t *testing.T) {
	_, client := janitorCluster(t, kfake.SeedTopics(2, "lanes"))
	fill(t, client, "lanes", 2, 10)
	j := NewJanitor(client, discardLog(), nil)
	for id := range 2 {
		at := partition{Topic: "lanes", ID: id}
		j.Trim(at, topicOf(client, at), 10)
	}
	lost := j.marks[partition{Topic: "lanes", ID: 0}]
	lost.at = lost.at.Add(-markHolds)
	j.marks[partition{Topic: "lanes", ID: 0}] = lost
	j.sweepOnce(t.Context())
	if kept, swept := beginning(t, client, "lanes", 0), beginning(t, client, "lanes", 1); kept != 0 || swept != 10 || len(j.marks) != 0 {
		t.Errorf("they begin at %d and %d; low watermarks: %v", kept, swept, j.marks)
	}
}

// The low watermark of a topic is not applied to another topic of its name. One that was taken back is not applied either.
func TestJanitorSparesATopicMadeAnew(t *testing.T) {
	_, client := janitorCluster(t, kfake.SeedTopics(3, "lanes"))
	fill(t, client, "lanes", 3, 10)
	j := NewJanitor(client, discardLog(), nil)
	at := func(id int) partition { return partition{Topic: "lanes", ID: id} }
	j.Trim(at(0), delivery.NewTopicID([16]byte{1}), 10)
	for _, id := range []int{1, 2} {
		j.Trim(at(id), topicOf(client, at(id)), 10)
	}
	j.Trim(at(2), delivery.TopicID{}, 0)
	j.sweepOnce(t.Context())
	for id, want := range []int64{0, 10, 0} {
		if got := beginning(t, client, "lanes", id); got != want {
			t.Errorf("partition %d begins at %d, want %d", id, got, want)
		}
	}
	if len(j.marks) != 0 {
		t.Errorf("low watermarks are left: %v", j.marks)
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
			cluster, client := janitorCluster(t, kfake.SeedTopics(1, "lanes"))
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
			s.trim("lanes", 0, 10)
			for range 3 {
				<-asked
			}
			if n := s.logs.Count("WARN"); n != c.warns {
				t.Errorf("%d warnings: %q", n, s.logs.Lines(""))
			}
			close(over)
			kafkatest.Eventually(t, "it is done", func() bool { return s.waiting() == 0 })
			if n := s.logs.Count("INFO"); n != c.warns {
				t.Errorf("%d lines say that it is over: %q", n, s.logs.Lines(""))
			}
			if at := beginning(t, client, "lanes", 0); at != 10 {
				t.Errorf("begins at %d", at)
			}
		})
	}
}

func TestJanitorMetric(t *testing.T) {
	_, client := janitorCluster(t)
	reg := prometheus.NewRegistry()
	NewJanitor(client, discardLog(), reg)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "pacer_janitor_deleted_records_total" {
		t.Errorf("registered: %v, %v", families, err)
	}
}

// TestNothingIsDeletedOfALogThatBeganAnew: a sweep that is under way when a mark is dropped deletes nothing by it, and a deletion that is
// under way ends before the drop returns.
func TestNothingIsDeletedOfALogThatBeganAnew(t *testing.T) {
	t.Parallel()
	cluster, client := janitorCluster(t, kfake.SeedTopics(1, "lanes"))
	fill(t, client, "lanes", 1, 10)
	j, at := NewJanitor(client, (&kafkatest.LogBook{}).Logger(), prometheus.NewRegistry()), partition{Topic: "lanes"}
	held := func(key kmsg.Key) (entered, release chan struct{}) {
		entered, release = make(chan struct{}), make(chan struct{})
		first := sync.OnceFunc(func() { close(entered) })
		cluster.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.SleepControl(func() { first(); <-release })
			return nil, nil, false
		})
		return entered, release
	}
	swept := func() chan struct{} {
		done := make(chan struct{})
		go func() { defer close(done); j.sweepOnce(t.Context()) }()
		return done
	}

	entered, release := held(kmsg.ListOffsets)
	j.Trim(at, topicOf(client, at), 5)
	done := swept()
	<-entered
	j.Trim(at, delivery.TopicID{}, 0)
	close(release)
	<-done
	if first := beginning(t, client, "lanes", 0); first != 0 {
		t.Errorf("the log begins at %d: records were deleted by a mark that was dropped", first)
	}

	entered, release = held(kmsg.DeleteRecords)
	j.Trim(at, topicOf(client, at), 5)
	done = swept()
	<-entered
	dropped := make(chan struct{})
	go func() { defer close(dropped); j.Trim(at, delivery.TopicID{}, 0) }()
	select {
	case <-dropped:
		t.Error("the mark was dropped while records were being deleted by it")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-done
	<-dropped
}

// TestAHungDeletionHoldsUpNoOtherPartition: while a broker does not answer the deletion of one lane's records, another lane, of which nothing
// can be deleted yet, is committed and settled.
func TestAHungDeletionHoldsUpNoOtherPartition(t *testing.T) {
	t.Parallel()
	cluster, client := janitorCluster(t, kfake.SeedTopics(2, "lanes"))
	fill(t, client, "lanes", 2, 10)
	j := NewJanitor(client, (&kafkatest.LogBook{}).Logger(), prometheus.NewRegistry())
	busy, fresh := partition{Topic: "lanes", ID: 0}, partition{Topic: "lanes", ID: 1}

	entered, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(entered) })
	cluster.ControlKey(int16(kmsg.DeleteRecords), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() { first(); <-release })
		return nil, nil, false
	})
	j.Trim(busy, topicOf(client, busy), 5)
	swept := make(chan struct{})
	go func() { defer close(swept); j.sweepOnce(context.Background()) }()
	<-entered

	b := newBudget(64 << 20)
	s, err := newSource(fresh, delivery.FromLane, start{offset: 0, committed: true, topic: topicOf(client, fresh), proven: true}, b,
		newMetrics(prometheus.NewRegistry(), b), offset.NewOrigins(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	keep := &checkpointer{opt: &Options{Group: "g", Positions: noCatalog{}, Trim: j.Trim, Logger: discardLog()}, sources: func() []*source { return []*source{s} }}
	saved := make(chan struct{})
	go func() { defer close(saved); keep.save(context.Background()) }()
	time.Sleep(100 * time.Millisecond)

	committed := make(chan struct{})
	go func() { // what the committer does for all partitions in turn, and the scheduler when it settles a job
		defer close(committed)
		s.progress()
		s.settle(0, "spring")
	}()
	select {
	case <-committed:
	case <-time.After(2 * time.Second):
		t.Error("a commit and a settled job of another partition have waited for 2 s, while a deletion is under way")
	}
	close(release)
	<-swept
	<-saved
	<-committed
}
