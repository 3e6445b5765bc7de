package requeue

import (
	"bytes"
	"context"
	"errors"
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
	cluster, client := fakeCluster(t)
	ensure(t, client, smallSpec("t."))
	var down atomic.Bool
	var attempts atomic.Int64
	down.Store(true)
	refusing(cluster, &down, &attempts, int16(kafka.NotEnoughReplicas))

	log, reg := &logBook{}, prometheus.NewRegistry()
	r := start(t, Options{Client: client, Prefix: "t.", Lanes: 8, Logger: log.logger(), Registerer: reg, MaxAttemptBackoff: 20 * time.Millisecond})
	s := newSource("pacer.jobs/0")
	expired := delivery.Destination{Kind: delivery.ToDead, Reason: delivery.ReasonExpired}
	for i, to := range []delivery.Destination{lane, timer, dead, expired} {
		r.Put(s.job(int64(i), "spring"), to)
	}
	eventually(t, "three refusals", func() bool { return attempts.Load() >= 3 })
	if s.count() != 0 {
		t.Fatalf("%d jobs settled while the broker refused", s.count())
	}
	if r.Healthy() {
		t.Error("healthy during an outage")
	}

	down.Store(false)
	eventually(t, "everything settled", func() bool { return s.count() == 4 })
	for i, want := range []delivery.Outcome{delivery.OutcomeRequeued, delivery.OutcomeRetried, delivery.OutcomeDead, delivery.OutcomeExpired} {
		if got, _ := s.outcome(int64(i)); got != want {
			t.Errorf("job %d: %s, want %s", i, got, want)
		}
	}
	eventually(t, "recovery", func() bool { return r.Healthy() && log.count("INFO") > 0 })
	if w, i := log.count("WARN"), log.count("INFO"); w != 1 || i != 1 {
		t.Errorf("%d warnings, %d infos for one outage: %q", w, i, log.lines)
	}
	for topic, want := range map[string]int{"t.lanes": 1, "t.timer.5s": 1, "t.dead": 2} {
		if got := len(readAll(t, client, topic)); got != want {
			t.Errorf("%d records in %s, want %d", got, topic, want)
		}
	}
	values := gather(t, reg)
	for name, want := range map[string]float64{
		"pacer_requeue_records_total/dead": 2, "pacer_requeue_records_total/lane": 1, "pacer_requeue_records_total/timer": 1,
		"pacer_requeue_outage": 0, "pacer_requeue_queued": 0, "pacer_requeue_hops": 1, "pacer_requeue_pin_fallbacks_total": 0,
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

func TestABatchIsCommittedBeforeTheNext(t *testing.T) {
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
	m.onProduce = func(context.Context, int) (int16, error) { note("produce"); return 0, nil }
	s := newSource("pacer.jobs/0")
	s.onEvent = note
	r, err := New(Options{Client: m.client(), Prefix: "t.", Lanes: 8})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(2*maxBatchJobs + 1) {
		r.Put(s.job(i, "spring"), lane)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	eventually(t, "everything settled", func() bool { return s.count() == 2*maxBatchJobs+1 })
	cancel()
	wg.Wait()
	want := []string{"produce", "settle", "flush", "produce", "settle", "flush", "produce", "settle"}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

func TestNothingIsWrittenWhileTheCommitFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newMemory("t."), newSource("a"), &logBook{}
		var failing atomic.Bool
		failing.Store(true)
		s.onFlush = func(context.Context) error {
			if failing.Load() {
				return errors.New("coordinator is gone")
			}
			return nil
		}
		r := start(t, Options{Client: m.client(), Prefix: "t.", Lanes: 8, Logger: log.logger()})
		r.Put(s.job(1, "c"), lane)
		synctest.Wait()
		r.Put(s.job(2, "c"), lane)
		time.Sleep(time.Minute)
		if s.count() != 1 || m.total("lanes") != 1 {
			t.Errorf("%d settled, %d written", s.count(), m.total("lanes"))
		}
		if n := s.flushCount(); n < 10 || log.count("WARN") != 1 {
			t.Errorf("%d flushes, %d warnings", n, log.count("WARN"))
		}
		failing.Store(false)
		time.Sleep(3 * time.Second)
		if s.count() != 2 || !r.Healthy() {
			t.Errorf("%d settled after the commit", s.count())
		}
	})
}

func TestOversizeConcernsOneJob(t *testing.T) {
	_, client := fakeCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "150000"}),
		kfake.SeedTopics(4, "t.lanes"), kfake.SeedTopics(2, "t.timer.5s", "t.dead"))
	r := start(t, Options{Client: client, Prefix: "t.", Lanes: 4, Timers: []time.Duration{5 * time.Second}})
	s := newSource("pacer.jobs/0")
	for i := range int64(400) {
		job := s.job(i, "spring")
		if job.Payload = make([]byte, 500); i == 123 {
			job.Payload = bytes.Repeat([]byte("x"), 200_000)
		}
		r.Put(job, lane)
	}
	eventually(t, "everything settled", func() bool { return s.count() == 400 })
	if got, _ := s.outcome(123); got != delivery.OutcomeDead {
		t.Errorf("the large job: %s", got)
	}
	if got, _ := s.outcome(122); got != delivery.OutcomeRequeued {
		t.Errorf("its neighbour: %s", got)
	}
	if n := len(readAll(t, client, "t.lanes")); n != 399 {
		t.Errorf("%d records in the lane", n)
	}
	letters := readAll(t, client, "t.dead")
	if len(letters) != 1 {
		t.Fatalf("%d dead letters", len(letters))
	}
	d := readDead(letters[0])
	if d.Reason != delivery.ReasonOversize || len(d.Payload) != 64<<10 || d.Truncated != 200_000 || d.Origin.Offset != 123 {
		t.Errorf("dead letter %s of %d bytes, truncated %d, origin %v", d.Reason, len(d.Payload), d.Truncated, d.Origin)
	}
	if n := r.batchBytes.Load(); n >= DefaultMaxBatchBytes || n < minBatchBytes {
		t.Errorf("batches of up to %d bytes after a refusal for size", n)
	}
	if s.twice != 0 {
		t.Errorf("%d jobs settled twice", s.twice)
	}
}

func TestAlreadyDeadJobKeepsItsReasonWhenCut(t *testing.T) {
	_, client := fakeCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "100000"}), kfake.SeedTopics(1, "t.dead"))
	r := start(t, Options{Client: client, Prefix: "t."})
	s := newSource("a")
	job := s.job(1, "c")
	job.Payload = make([]byte, 120_000)
	r.Put(job, dead)
	eventually(t, "settled", func() bool { return s.count() == 1 })
	if d := readDead(readAll(t, client, "t.dead")[0]); d.Reason != delivery.ReasonRefused || d.Truncated != 120_000 {
		t.Errorf("dead letter %+v", d)
	}
}

func TestMissingTopicKeepsJobsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newMemory("t."), newSource("a"), &logBook{}
		delete(m.topics, "t.lanes")
		r := start(t, Options{Client: m.client(), Prefix: "t.", Logger: log.logger()})
		r.Put(s.job(1, "c"), lane)
		time.Sleep(10 * time.Second)
		if s.count() != 0 || r.Healthy() || log.count("WARN") != 1 {
			t.Errorf("%d settled, healthy %t, %d warnings", s.count(), r.Healthy(), log.count("WARN"))
		}
		if got := r.Drain(t.Context()); got != 0 {
			t.Errorf("%d in doubt although nothing was sent", got)
		}
	})
}

func TestPutNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory("t."), newSource("a")
		m.onProduce = func(ctx context.Context, _ int) (int16, error) { <-ctx.Done(); return 0, ctx.Err() }
		r := start(t, Options{Client: m.client(), Prefix: "t.", Lanes: 8})
		began := time.Now()
		for i := range int64(20_000) {
			r.Put(s.job(i, "c"), lane)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("Put waited %s", took)
		}
		synctest.Wait()
		if got := r.Stats(); got.Queued+got.Sending < 19_000 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestHoldDelaysLanesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory("t."), newSource("a")
		r := start(t, Options{Client: m.client(), Prefix: "t.", Lanes: 8})
		r.Hold(time.Hour)
		r.Put(s.job(1, "c"), lane)
		r.Put(s.job(2, "c"), timer)
		r.Put(s.job(3, "c"), dead)
		time.Sleep(maxHold - time.Millisecond)
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
	m, big, small := newMemory("t."), newSource("big"), newSource("small")
	r, err := New(Options{Client: m.client(), Prefix: "t.", Lanes: 8, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	var before atomic.Int64
	small.onEvent = func(string) { before.Store(int64(big.count())) }
	for i := range int64(20 * maxBatchJobs) {
		r.Put(big.job(i, "c"), lane)
	}
	r.Put(small.job(1, "c"), lane)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	eventually(t, "everything settled", func() bool { return big.count() == 20*maxBatchJobs && small.count() == 1 })
	cancel()
	wg.Wait()
	if before.Load() > 2*maxBatchJobs {
		t.Errorf("%d jobs of the big source went before the small one's", before.Load())
	}
}

func TestLaneFollowsThePin(t *testing.T) {
	m, s := newMemory("t."), newSource("a")
	r := start(t, Options{Client: m.client(), Prefix: "t.", Lanes: 8, Pins: &fakePins{lane: 3}})
	r.Put(s.job(1, "c"), lane)
	eventually(t, "settled", func() bool { return s.count() == 1 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.written[partition{"t.lanes", 3}]) != 1 {
		t.Errorf("written to %v", m.written)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	client := newMemory("t.").client()
	for name, opts := range map[string]Options{
		"no client": {}, "no transport": {Client: &kafka.Client{Addr: kafka.TCP("a:1")}},
		"lanes": {Client: client, Lanes: -1}, "workers": {Client: client, Workers: -1},
		"bytes": {Client: client, MaxBatchBytes: 1}, "timers": {Client: client, Timers: []time.Duration{0}},
		"back-off": {Client: client, MaxAttemptBackoff: -1},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
