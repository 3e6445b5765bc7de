package consumer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
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

// trim lets the janitor delete what lies before an offset of a partition.
func (s *sweeper) trim(topic string, id int, before int64) {
	at := partition{Topic: topic, ID: id}
	s.mark(at, topicOf(s.opt.Client, at), before)
}

// mark is trim in the log of a topic with an id.
func (s *sweeper) mark(at partition, topic delivery.TopicID, before int64) *source {
	marked := &source{partition: at, from: delivery.FromLane, topic: topic, committed: before, stored: before}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked[at] = marked
	return marked
}

// topicOf is the id of the topic of a partition, where it can be asked for.
func topicOf(client *broker.Client, at partition) delivery.TopicID {
	identity, _ := client.IdentityOf(context.Background(), at)
	return identity
}

// sweeper is a janitor at work.
type sweeper struct {
	*janitor
	logs *kafkatest.LogBook
	stop func()

	mu     sync.Mutex
	marked map[partition]*source
}

func newJanitor(client *broker.Client, every time.Duration) *sweeper {
	s := &sweeper{logs: &kafkatest.LogBook{}, marked: map[partition]*source{}}
	s.janitor = &janitor{
		opt:     &Options{Client: client, Logger: s.logs.Logger(), sweepEvery: every},
		metrics: newMetrics(prometheus.NewRegistry(), newBudget(1<<20)),
		sources: func() []*source {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Collect(maps.Values(s.marked))
		},
	}
	return s
}

func startJanitor(t testing.TB, client *broker.Client, every time.Duration) *sweeper {
	t.Helper()
	s := newJanitor(client, every)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	s.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(s.stop)
	return s
}

func (s *sweeper) removed() float64 { return testutil.ToFloat64(s.metrics.deleted) }

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
	kafkatest.Eventually(t, "190 records are counted", func() bool { return s.removed() == 190 })
	s.trim(lanes, 3, 99)
	kafkatest.Eventually(t, "more is swept", begins(lanes, 100, 40, 0, 99))
	s.trim(lanes, 2, 101) // beyond the end: of a topic that was made anew
	time.Sleep(100 * time.Millisecond)
	if !begins(lanes, 100, 40, 0, 99)() {
		t.Error("a partition was swept beyond its end")
	}
	if n := s.removed(); n != 289 {
		t.Errorf("%v counted, 289 were removed", n)
	}
	s.stop()
	if n := s.logs.Count("WARN") + s.logs.Count("ERROR"); n != 0 {
		t.Errorf("%d warnings: %q", n, s.logs.Lines(""))
	}
}

func TestJanitor(t *testing.T) {
	brokers := testservices.Kafka(t)
	client := newBroker(t, broker.Options{Brokers: brokers})
	checkJanitor(t, client, testservices.Topic(t, brokers, "janitor-lanes", 4), testservices.Topic(t, brokers, "janitor-timer", 2))
}

// janitorCluster is a broker in this process, or several, and a client of it.
func janitorCluster(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *broker.Client) {
	cluster := kafkatest.Cluster(t, opts...)
	return cluster, newBroker(t, broker.Options{Brokers: cluster.ListenAddrs()})
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

// The low watermark of a topic is not applied to another topic of its name.
func TestJanitorSparesATopicMadeAnew(t *testing.T) {
	_, client := janitorCluster(t, kfake.SeedTopics(2, "lanes"))
	fill(t, client, "lanes", 2, 10)
	j := newJanitor(client, time.Hour)
	j.mark(partition{Topic: "lanes", ID: 0}, delivery.NewTopicID([16]byte{1}), 10)
	j.trim("lanes", 1, 10)
	j.sweep(t.Context())
	for id, want := range []int64{0, 10} {
		if got := beginning(t, client, "lanes", id); got != want {
			t.Errorf("partition %d begins at %d, want %d", id, got, want)
		}
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
			kafkatest.Eventually(t, "it is done", func() bool { return beginning(t, client, "lanes", 0) == 10 })
			kafkatest.Eventually(t, "a line says that it is over", func() bool { return s.logs.Count("INFO") == c.warns })
		})
	}
}

// TestNothingIsDeletedOfALogThatBeganAnew: a sweep that is under way when a source ends deletes nothing of its partition, and a deletion that
// is under way is waited for.
func TestNothingIsDeletedOfALogThatBeganAnew(t *testing.T) {
	t.Parallel()
	cluster, client := janitorCluster(t, kfake.SeedTopics(1, "lanes"))
	fill(t, client, "lanes", 1, 10)
	j, at := newJanitor(client, time.Hour), partition{Topic: "lanes"}
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
		go func() { defer close(done); j.sweep(t.Context()) }()
		return done
	}

	entered, release := held(kmsg.ListOffsets)
	ending := j.mark(at, topicOf(client, at), 5)
	done := swept()
	<-entered
	ending.mu.Lock()
	ending.gone = true
	ending.mu.Unlock()
	close(release)
	<-done
	if first := beginning(t, client, "lanes", 0); first != 0 {
		t.Errorf("the log begins at %d: records were deleted for a source that had ended", first)
	}

	entered, release = held(kmsg.DeleteRecords)
	j.mark(at, topicOf(client, at), 5)
	done = swept()
	<-entered
	over := make(chan struct{})
	go func() { defer close(over); j.await() }()
	select {
	case <-over:
		t.Error("a deletion that is under way was not waited for")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-done
	<-over
}
