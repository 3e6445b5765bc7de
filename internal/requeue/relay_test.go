package requeue

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/brokertest"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

func TestJobsAreSettledOnlyOnceTheBrokerHasThem(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Cluster(t)
	client := brokertest.Dial(t, broker.Options{Brokers: cluster.ListenAddrs()})
	if _, err := EnsureTopics(t.Context(), client, smallSpec("t."), nil); err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	var attempts atomic.Int64
	down.Store(true)
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		attempts.Add(1)
		if !down.Load() {
			return nil, nil, false
		}
		in := req.(*kmsg.ProduceRequest)
		res := in.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range in.Topics {
			rt := kmsg.ProduceResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				code := int16(kafka.NotEnoughReplicas)
				rt.Partitions = append(rt.Partitions, kmsg.ProduceResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, true
	})
	r := newRig(t, func(o *Options) { o.Client = client })
	run(t, r.Relay)
	s := newSource("pacer.jobs/0")
	expired := delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonExpired}
	for i, to := range []delivery.Reroute{lane, timer, dead, expired} {
		r.Put(s.job(int64(i), "spring"), to)
	}
	kafkatest.Eventually(t, "three refusals", func() bool { return attempts.Load() >= 3 })
	if s.count() != 0 || !r.outage() {
		t.Fatalf("%d jobs settled while the broker refused; that is an outage: %t", s.count(), r.outage())
	}

	down.Store(false)
	kafkatest.Eventually(t, "everything settled", func() bool { return s.count() == 4 })
	for i, want := range []delivery.Outcome{delivery.OutcomeRequeued, delivery.OutcomeRetried, delivery.OutcomeDead, delivery.OutcomeExpired} {
		if got, _ := s.outcome(int64(i)); got != want {
			t.Errorf("job %d: %s, want %s", i, got, want)
		}
	}
	kafkatest.Eventually(t, "recovery", func() bool { return !r.outage() && r.log.Count("INFO") > 0 })
	r.logged(1, 1)
	for topic, want := range map[string]int{"t.lanes": 1, "t.timer.5s": 1, "t.dead": 2} {
		if got := len(brokertest.ReadAll(t, client, topic)); got != want {
			t.Errorf("%d records in %s, want %d", got, topic, want)
		}
	}
	r.shows(map[string]float64{
		"pacer_requeue_records_total/dead": 2, "pacer_requeue_records_total/lane": 1, "pacer_requeue_records_total/timer": 1,
		"pacer_dead_letters_total/refused": 1, "pacer_dead_letters_total/expired": 1, "pacer_dead_letters_total/too_large": 0,
	})
}

func TestABatchIsSettledBeforeTheNextIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		note := func(e string) {
			mu.Lock()
			defer mu.Unlock()
			if len(events) == 0 || events[len(events)-1] != e {
				events = append(events, e)
			}
		}
		r, s := newRig(t), newSource("pacer.jobs/0")
		r.m.OnProduce = func(context.Context, int) (int16, error) { note("produce"); return 0, nil }
		s.onEvent = note
		for i := range int64(2*maxBatchJobs + 1) {
			r.Put(s.job(i, "spring"), lane)
		}
		run(t, r.Relay)
		synctest.Wait()
		r.settled(2*maxBatchJobs+1, s)
		if want := slices.Repeat([]string{"produce", "settle"}, 3); !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

// TestOversizeConcernsOneJob: a record that its topic does not accept stays open, alone and loudly, until the topic accepts
// it; nothing of it is cut.
func TestOversizeConcernsOneJob(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		s := newSource("pacer.jobs/0")
		var raised atomic.Bool
		all := make(chan struct{}) // closed when all jobs are there: the large one must not be a batch of its own
		r.m.Refuse = func(_ string, _, bytes int) (int16, bool) {
			<-all
			if bytes > 100_000 && !raised.Load() {
				return int16(kafka.MessageSizeTooLarge), false
			}
			return 0, true
		}
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
		if r.settled(399, s); r.m.Total("dead") != 0 {
			t.Errorf("%d dead letters", r.m.Total("dead"))
		}
		if n := r.log.Count("ERROR"); n < 5 || n > 11 || r.log.Count("WARN") != 0 {
			t.Errorf("%d error lines in ten minutes, %q", n, r.log.Lines(""))
		}
		r.shows(map[string]float64{"pacer_requeue_oversize": 2, "pacer_requeue_outage": 0, "pacer_requeue_queued": 2})
		raised.Store(true)
		time.Sleep(2 * time.Minute)
		r.settled(401, s)
		if got, _ := s.outcome(123); got != delivery.OutcomeRequeued {
			t.Errorf("the large job: %s", got)
		}
	})
}

// TestOversizeOfAPartitionThatIsLost: the partition of a job moves while its record is found too large, and the job is dropped.
func TestOversizeOfAPartitionThatIsLost(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		s := newSource("pacer.jobs/0")
		r.m.Refuse = func(string, int, int) (int16, bool) {
			s.moves(false, true)
			return int16(kafka.MessageSizeTooLarge), false
		}
		r.Put(s.job(0, "spring"), dead)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.dropped != 1 || r.waiting() != 0 {
			t.Errorf("%d dropped, %d wait", s.dropped, r.waiting())
		}
	})
}

func TestMissingTopicKeepsJobsOpen(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		delete(r.m.Topics, "t.lanes")
		r.Put(newSource("a").job(1, "c"), lane)
		time.Sleep(10 * time.Second)
		if r.logged(1, 0); r.m.Total("") != 0 || !r.outage() {
			t.Errorf("%d written, outage %t", r.m.Total(""), r.outage())
		}
	})
}

func TestPutNeverBlocks(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		s := newSource("a")
		r.m.OnProduce = func(ctx context.Context, _ int) (int16, error) { <-ctx.Done(); return 0, ctx.Err() }
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
		if queued := r.box.jobs(); queued < 20_000-laneWorkers*maxBatchJobs {
			t.Errorf("%d queued", queued)
		}
	})
}

func TestHoldDelaysLanesOnly(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		s := newSource("a")
		r.Throttle(time.Hour)
		for i, to := range []delivery.Reroute{lane, timer, dead} {
			r.Put(s.job(int64(i), "c"), to)
		}
		time.Sleep(maxPause - time.Millisecond)
		if _, ok := s.outcome(0); ok || s.count() != 2 {
			t.Errorf("%d settled during the hold", s.count())
		}
		time.Sleep(2 * time.Millisecond)
		r.settled(3, s)
	})
}
