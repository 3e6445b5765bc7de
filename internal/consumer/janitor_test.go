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
	"github.com/pacer/pacer/internal/testservices/brokertest"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// beginning is the earliest offset of a partition.
func beginning(t testing.TB, client *broker.Client, topic string, id int) int64 {
	t.Helper()
	first, _, err := client.Bounds(t.Context(), partition{Topic: topic, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// sweeper is a janitor that is told what to delete.
type sweeper struct {
	*janitor
	cluster *kfake.Cluster
	client  *broker.Client
	logs    *kafkatest.LogBook

	mu     sync.Mutex
	marked map[partition]*source
}

// newJanitor makes a janitor of some lanes, with n records each.
func newJanitor(t *testing.T, every time.Duration, lanes, n int, opts ...kfake.Opt) *sweeper {
	cluster := kafkatest.Cluster(t, append(opts, kfake.SeedTopics(int32(lanes), "lanes"))...)
	s := &sweeper{
		cluster: cluster, client: brokertest.Dial(t, broker.Options{Brokers: cluster.ListenAddrs()}), logs: &kafkatest.LogBook{},
		marked: map[partition]*source{},
	}
	s.janitor = &janitor{
		opt:     &Options{Client: s.client, Logger: s.logs.Logger(), sweepEvery: every},
		metrics: newMetrics(prometheus.NewRegistry(), newBudget(1<<20)),
		sources: func() []*source {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Collect(maps.Values(s.marked))
		},
	}
	s.fill(t, "lanes", lanes, n)
	return s
}

// fill writes n records to each partition of a topic.
func (s *sweeper) fill(t *testing.T, topic string, partitions, n int) {
	t.Helper()
	p := broker.NewProducer(broker.ProducerOptions{Client: s.client})
	for id := range partitions {
		if _, err := p.PublishTo(t.Context(), []partition{{Topic: topic, ID: id}}, broker.All(make([]delivery.Record, n)), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// start has it sweep until the test ends, or it is stopped.
func (s *sweeper) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// trim lets it delete what lies before an offset of a partition.
func (s *sweeper) trim(topic string, id int, before int64) *source {
	identity, _ := s.client.IdentityOf(context.Background(), partition{Topic: topic, ID: id})
	return s.mark(partition{Topic: topic, ID: id}, identity, before)
}

// mark is trim in the log of a topic with an id.
func (s *sweeper) mark(at partition, topic delivery.TopicID, before int64) *source {
	marked := &source{partition: at, from: delivery.FromLane, topic: topic, committed: before, stored: before}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked[at] = marked
	return marked
}

// TestJanitor: it removes what it is told to from two topics, and nothing else. With several brokers, each is asked for what it leads.
func TestJanitor(t *testing.T) {
	s := newJanitor(t, 20*time.Millisecond, 4, 100, kfake.NumBrokers(3), kfake.SeedTopics(2, "timer"))
	requests := make(chan int, 1000)
	s.cluster.ControlKey(int16(kmsg.DeleteRecords), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.cluster.KeepControl()
		n := 0
		for _, topic := range r.(*kmsg.DeleteRecordsRequest).Topics {
			n += len(topic.Partitions)
		}
		requests <- n
		return nil, nil, false
	})
	s.fill(t, "timer", 2, 50)
	stop := s.start(t)
	s.trim("lanes", 0, 100)
	s.trim("lanes", 1, 40)
	s.trim("lanes", 2, 0)
	s.trim("timer", 1, 50)
	begins := func(topic string, want ...int64) func() bool {
		return func() bool {
			for id, offset := range want {
				if beginning(t, s.client, topic, id) != offset {
					return false
				}
			}
			return true
		}
	}
	removed := func() float64 { return testutil.ToFloat64(s.metrics.deleted) }
	kafkatest.Eventually(t, "the lanes are swept", begins("lanes", 100, 40, 0, 0))
	kafkatest.Eventually(t, "the timer is swept", begins("timer", 0, 50))
	kafkatest.Eventually(t, "190 records are counted", func() bool { return removed() == 190 })
	s.trim("lanes", 3, 99)
	kafkatest.Eventually(t, "more is swept", begins("lanes", 100, 40, 0, 99))
	s.trim("lanes", 2, 101) // beyond the end: of a topic that was made anew
	time.Sleep(100 * time.Millisecond)
	if !begins("lanes", 100, 40, 0, 99)() {
		t.Error("a partition was swept beyond its end")
	}
	if n := removed(); n != 289 {
		t.Errorf("%v counted, 289 were removed", n)
	}
	stop()
	if n := s.logs.Count("WARN") + s.logs.Count("ERROR"); n != 0 {
		t.Errorf("%d warnings: %q", n, s.logs.Lines(""))
	}
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
	s := newJanitor(t, time.Hour, 2, 10)
	s.mark(partition{Topic: "lanes", ID: 0}, delivery.NewTopicID([16]byte{1}), 10)
	s.trim("lanes", 1, 10)
	s.sweep(t.Context())
	for id, want := range []int64{0, 10} {
		if got := beginning(t, s.client, "lanes", id); got != want {
			t.Errorf("partition %d begins at %d, want %d", id, got, want)
		}
	}
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
			s := newJanitor(t, 10*time.Millisecond, 1, 10)
			asked, over := make(chan struct{}, 1000), make(chan struct{})
			s.cluster.ControlKey(int16(kmsg.DeleteRecords), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.cluster.KeepControl()
				select {
				case <-over:
					return nil, nil, false
				default:
				}
				asked <- struct{}{}
				answer := r.ResponseKind().(*kmsg.DeleteRecordsResponse)
				answer.Topics = []kmsg.DeleteRecordsResponseTopic{{
					Topic: "lanes", Partitions: []kmsg.DeleteRecordsResponseTopicPartition{{ErrorCode: c.code}},
				}}
				return answer, nil, true
			})
			s.start(t)
			s.trim("lanes", 0, 10)
			for range 3 {
				<-asked
			}
			if n := s.logs.Count("WARN"); n != c.warns {
				t.Errorf("%d warnings: %q", n, s.logs.Lines(""))
			}
			close(over)
			kafkatest.Eventually(t, "it is done", func() bool { return beginning(t, s.client, "lanes", 0) == 10 })
			kafkatest.Eventually(t, "a line says that it is over", func() bool { return s.logs.Count("INFO") == c.warns })
		})
	}
}

// TestNothingIsDeletedOfALogThatBeganAnew: a sweep that is under way when a source ends deletes nothing of its partition, and a deletion that
// is under way is waited for.
func TestNothingIsDeletedOfALogThatBeganAnew(t *testing.T) {
	t.Parallel()
	s := newJanitor(t, time.Hour, 1, 10)
	// swept begins a sweep, and holds its request of a kind up until release is closed.
	swept := func(key kmsg.Key) (entered, release, done chan struct{}) {
		entered, release, done = make(chan struct{}), make(chan struct{}), make(chan struct{})
		first := sync.OnceFunc(func() { close(entered) })
		s.cluster.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			s.cluster.SleepControl(func() { first(); <-release })
			return nil, nil, false
		})
		go func() { defer close(done); s.sweep(t.Context()) }()
		return entered, release, done
	}

	ending := s.trim("lanes", 0, 5)
	entered, release, done := swept(kmsg.ListOffsets)
	<-entered
	ending.mu.Lock()
	ending.gone = true
	ending.mu.Unlock()
	close(release)
	<-done
	if first := beginning(t, s.client, "lanes", 0); first != 0 {
		t.Errorf("the log begins at %d: records were deleted for a source that had ended", first)
	}

	s.trim("lanes", 0, 5)
	entered, release, done = swept(kmsg.DeleteRecords)
	<-entered
	over := make(chan struct{})
	go func() { defer close(over); s.await() }()
	select {
	case <-over:
		t.Error("a deletion that is under way was not waited for")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-done
	<-over
}
