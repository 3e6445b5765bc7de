package requeue

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// refusing makes the broker refuse every produce request with a code while the switch is on.
func refusing(cluster *kfake.Cluster, on *atomic.Bool, attempts *atomic.Int64, code int16) {
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		attempts.Add(1)
		if !on.Load() {
			return nil, nil, false
		}
		in := req.(*kmsg.ProduceRequest)
		res := in.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range in.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, true
	})
}

func TestJobsAreSettledOnlyOnceTheBrokerHasThem(t *testing.T) {
	t.Parallel()
	cluster, client := fakeCluster(t)
	ensure(t, client, smallSpec("t."))
	var down atomic.Bool
	var attempts atomic.Int64
	down.Store(true)
	refusing(cluster, &down, &attempts, int16(kafka.NotEnoughReplicas))

	log, reg := &kafkatest.LogBook{}, prometheus.NewRegistry()
	r := start(t, Options{Client: client, Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Logger: log.Logger(), Registerer: reg})
	s := newSource("pacer.jobs/0")
	expired := delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonExpired}
	for i, to := range []delivery.Reroute{lane, timer, dead, expired} {
		r.Put(s.job(int64(i), "spring"), to)
	}
	kafkatest.Eventually(t, "three refusals", func() bool { return attempts.Load() >= 3 })
	if s.count() != 0 {
		t.Fatalf("%d jobs settled while the broker refused", s.count())
	}
	if !outage(r) {
		t.Error("no outage while the broker refuses")
	}

	down.Store(false)
	kafkatest.Eventually(t, "everything settled", func() bool { return s.count() == 4 })
	for i, want := range []delivery.Outcome{delivery.OutcomeRequeued, delivery.OutcomeRetried, delivery.OutcomeDead, delivery.OutcomeExpired} {
		if got, _ := s.outcome(int64(i)); got != want {
			t.Errorf("job %d: %s, want %s", i, got, want)
		}
	}
	kafkatest.Eventually(t, "recovery", func() bool { return !outage(r) && log.Count("INFO") > 0 })
	if w, i := log.Count("WARN"), log.Count("INFO"); w != 1 || i != 1 {
		t.Errorf("%d warnings, %d infos for one outage: %q", w, i, log.Lines(""))
	}
	for topic, want := range map[string]int{"t.lanes": 1, "t.timer.5s": 1, "t.dead": 2} {
		if got := len(readAll(t, client, topic)); got != want {
			t.Errorf("%d records in %s, want %d", got, topic, want)
		}
	}
	values := gather(t, reg)
	for name, want := range map[string]float64{
		"pacer_requeue_records_total/dead": 2, "pacer_requeue_records_total/lane": 1, "pacer_requeue_records_total/timer": 1,
		"pacer_dead_letters_total/refused": 1, "pacer_dead_letters_total/expired": 1, "pacer_dead_letters_total/too_large": 0,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s = %v (there: %t), want %v", name, got, ok, want)
		}
	}
}

// gather reads every metric: the value, or how often a histogram observed.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestABatchIsSettledBeforeTheNextIsWritten(t *testing.T) {
	var mu sync.Mutex
	var events []string
	note := func(e string) {
		mu.Lock()
		defer mu.Unlock()
		if len(events) == 0 || events[len(events)-1] != e {
			events = append(events, e)
		}
	}
	m := newMemory("t.")
	m.OnProduce = func(context.Context, int) (int16, error) { note("produce"); return 0, nil }
	s := newSource("pacer.jobs/0")
	s.onEvent = note
	r := New(Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
	for i := range int64(2*maxBatchJobs + 1) {
		r.Put(s.job(i, "spring"), lane)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	kafkatest.Eventually(t, "everything settled", func() bool { return s.count() == 2*maxBatchJobs+1 })
	cancel()
	wg.Wait()
	want := []string{"produce", "settle", "produce", "settle", "produce", "settle"}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

// TestOversizeConcernsOneJob: a record that its topic does not accept stays open, alone and loudly, until the topic accepts
// it; nothing of it is cut.
func TestOversizeConcernsOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log, reg := newMemory("t."), newSource("pacer.jobs/0"), &kafkatest.LogBook{}, prometheus.NewRegistry()
		var raised atomic.Bool
		all := make(chan struct{}) // closed when all jobs are there: the large one must not be a batch of its own
		m.Refuse = func(_ string, _, bytes int) (int16, bool) {
			<-all
			if bytes > 100_000 && !raised.Load() {
				return int16(kafka.MessageSizeTooLarge), false
			}
			return 0, true
		}
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Logger: log.Logger(), Registerer: reg})
		for i := range int64(400) {
			job := s.job(i, "spring")
			if job.Payload = make([]byte, 500); i == 123 {
				job.Payload = bytes.Repeat([]byte("x"), 200_000)
			}
			r.Put(job, lane)
		}
		letter := s.job(400, "spring")
		letter.Payload = make([]byte, 150_000)
		r.Put(letter, dead)
		close(all)
		time.Sleep(10 * time.Minute)
		if s.count() != 399 || m.Total("dead") != 0 {
			t.Errorf("%d of 399 settled, %d dead letters", s.count(), m.Total("dead"))
		}
		if n := log.Count("ERROR"); n < 5 || n > 11 || log.Count("WARN") != 0 {
			t.Errorf("%d error lines in ten minutes, %q", n, log.Lines(""))
		}
		values := gather(t, reg)
		if values["pacer_requeue_oversize"] != 2 || values["pacer_requeue_outage"] != 0 || values["pacer_requeue_queued"] != 2 {
			t.Errorf("metrics %v", values)
		}
		raised.Store(true)
		time.Sleep(2 * time.Minute)
		if s.count() != 401 || s.twice != 0 || m.Total("") != 401 {
			t.Errorf("%d settled, %d twice, %d written", s.count(), s.twice, m.Total(""))
		}
		if got, _ := s.outcome(123); got != delivery.OutcomeRequeued {
			t.Errorf("the large job: %s", got)
		}
	})
}

// TestOversizeOfAPartitionThatIsLost: the partition of a job moves while its record is found too large, and the job is dropped.
func TestOversizeOfAPartitionThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory("t."), newSource("pacer.jobs/0")
		m.Refuse = func(string, int, int) (int16, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.left = true
			return int16(kafka.MessageSizeTooLarge), false
		}
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		r.Put(s.job(0, "spring"), dead)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.dropped != 1 || queued(r) != 0 {
			t.Errorf("%d dropped, %d wait", s.dropped, queued(r))
		}
	})
}

func TestMissingTopicKeepsJobsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newMemory("t."), newSource("a"), &kafkatest.LogBook{}
		delete(m.Topics, "t.lanes")
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t."}, Logger: log.Logger()})
		r.Put(s.job(1, "c"), lane)
		time.Sleep(10 * time.Second)
		if s.count() != 0 || !outage(r) || log.Count("WARN") != 1 {
			t.Errorf("%d settled, outage %t, %d warnings", s.count(), outage(r), log.Count("WARN"))
		}
		if got := r.Drain(t.Context()); got != 0 {
			t.Errorf("%d in doubt although nothing was sent", got)
		}
	})
}

func TestPutNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory("t."), newSource("a")
		m.OnProduce = func(ctx context.Context, _ int) (int16, error) { <-ctx.Done(); return 0, ctx.Err() }
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		began := time.Now()
		for i := range int64(20_000) {
			r.Put(s.job(i, "c"), lane)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("Put waited %s", took)
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if queued, sending := r.box.queued, r.box.open(); queued+sending < 19_000 {
			t.Errorf("%d queued, %d in produce calls", queued, sending)
		}
	})
}

func TestHoldDelaysLanesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory("t."), newSource("a")
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		r.Throttle(time.Hour)
		r.Put(s.job(1, "c"), lane)
		r.Put(s.job(2, "c"), timer)
		r.Put(s.job(3, "c"), dead)
		time.Sleep(maxPause - time.Millisecond)
		if _, ok := s.outcome(1); ok || s.count() != 2 {
			t.Errorf("%d settled during the hold", s.count())
		}
		time.Sleep(2 * time.Millisecond)
		if s.count() != 3 {
			t.Errorf("%d settled after the hold", s.count())
		}
	})
}

func TestSmallSourceIsNotStarved(t *testing.T) {
	t.Parallel()
	m, big, small := newMemory("t."), newSource("big"), newSource("small")
	r := New(Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Workers: 1})
	var before atomic.Int64
	small.onEvent = func(string) { before.Store(int64(big.count())) }
	for i := range int64(20 * maxBatchJobs) {
		r.Put(big.job(i, "c"), lane)
	}
	r.Put(small.job(1, "c"), lane)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	kafkatest.Eventually(t, "everything settled", func() bool { return big.count() == 20*maxBatchJobs && small.count() == 1 })
	cancel()
	wg.Wait()
	if before.Load() > 2*maxBatchJobs {
		t.Errorf("%d jobs of the big source went before the small one's", before.Load())
	}
}

// uncommitted is a source whose commits never come: its topic was deleted, or the broker refuses them.
type uncommitted struct{ *fakeSource }

func (uncommitted) Flush(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// Partitions whose commits never come hold up no others: nothing that is written waits for a commit.
func TestPartitionsWithoutCommitsDelayNoOther(t *testing.T) {
	for name, to := range map[string]delivery.Reroute{"lanes": lane, "timers": timer, "dead letters": dead} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory("t.")
				m.OnProduce = func(context.Context, int) (int16, error) { time.Sleep(time.Millisecond); return 0, nil }
				r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
				took := func(jobs int64) time.Duration {
					began, s := time.Now(), newSource("healthy/0")
					for i := range jobs {
						r.Put(s.job(i, "b"), to)
					}
					for s.count() < int(jobs) && time.Since(began) < time.Hour {
						time.Sleep(time.Millisecond)
					}
					return time.Since(began)
				}
				alone := took(3000)
				for p := range 6 {
					s := newSource(fmt.Sprint("deleted/", p))
					for i := range int64(2 * maxBatchJobs) {
						job := s.job(i, "a")
						job.Source = uncommitted{s}
						r.Put(job, to)
					}
				}
				time.Sleep(time.Second)
				if beside := took(3000); beside > 2*alone {
					t.Errorf("3000 jobs took %s, and %s beside six partitions without commits", alone, beside)
				}
			})
		})
	}
}
