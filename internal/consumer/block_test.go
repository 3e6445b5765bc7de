package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

// stayers is a handler that leaves the jobs of one campaign in ingress: those that do not fit its queue are refused. All others are
// settled at once.
type stayers struct {
	*fake
	mu       sync.Mutex
	campaign string
	capacity int
	queue    []*delivery.Job
	waiting  map[delivery.Source]bool
	offers   int
}

func newStayers(campaign string, capacity int) *stayers {
	return &stayers{fake: newFake(), campaign: campaign, capacity: capacity, waiting: map[delivery.Source]bool{}}
}

func (s *stayers) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offers++
	var rest []*delivery.Job
	for _, j := range jobs {
		switch {
		case j.Campaign != s.campaign:
			rest = append(rest, j)
		case len(refused) > 0 || len(s.queue) >= s.capacity:
			refused = append(refused, j)
			s.waiting[j.Source] = true
		default:
			s.queue = append(s.queue, j)
		}
	}
	_, err = s.fake.Offer(ctx, rest)
	return refused, err
}

// send settles at most n queued jobs, and says that there is room when half of the queue is empty.
func (s *stayers) send(ctx context.Context, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.queue))
	_, _ = s.fake.Offer(ctx, s.queue[:n]) // settles
	s.queue = s.queue[n:]
	if len(s.queue) <= s.capacity/2 {
		for src := range s.waiting {
			src.GrantCapacity(s.campaign, int64(s.capacity-len(s.queue)))
		}
		clear(s.waiting)
	}
}

// pause gives the queue back, the last job first, and takes no more.
func (s *stayers) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity = 0
	for _, j := range slices.Backward(s.queue) {
		s.waiting[j.Source] = true
		j.Source.Release(j.Campaign, j.Offset)
	}
	s.queue = nil
}

// resize changes the room, and says so.
func (s *stayers) resize(capacity int) {
	s.mu.Lock()
	s.capacity = capacity
	s.mu.Unlock()
	s.send(context.Background(), 0)
}

func (s *stayers) Drain(ctx context.Context) (int, error) {
	s.mu.Lock()
	s.queue = nil
	clear(s.waiting)
	s.mu.Unlock()
	return s.fake.Drain(ctx)
}

func (s *stayers) Revoke(ctx context.Context) error {
	s.mu.Lock()
	s.queue = slices.DeleteFunc(s.queue, revokedOf)
	s.mu.Unlock()
	return s.fake.Revoke(ctx)
}

func (s *stayers) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers
}

// run sends until stopped.
func (s *stayers) run(t *testing.T, n int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for retry.Sleep(ctx, time.Millisecond) == nil {
			s.send(ctx, n)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// Jobs that stay in ingress are all sent, in order and once, with a queue far smaller than a fetch, also over a restart.
func TestBlockedJobsComeInOrder(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		ids := numbered("b", 0, 1500)
		for piece := range slices.Chunk(ids, 100) {
			r.produceIDs(r.jobs(), 0, "b", piece)
		}
		first := newStayers("b", 40)
		stop := first.run(t, 10)
		c := r.start(first.fake, func(o *Options) { o.Handler = first })
		r.eventually("a part is sent", func() bool { return len(c.orderOf("b")) > 300 })
		stop()
		c.stop()
		sent := c.orderOf("b")

		second := newStayers("b", 40)
		defer second.run(t, 20)()
		d := r.start(second.fake, func(o *Options) { o.Handler = second })
		r.eventually("the rest is sent", func() bool { return d.saw(ids[len(ids)-1]) })
		r.eventually("all is committed", func() bool { return r.committed(r.jobs(), 0) == int64(len(ids)) })
		d.stop()
		if got := append(sent, d.orderOf("b")...); !slices.Equal(got, ids) {
			t.Errorf("%d before the restart and %d after it, not all, or out of order, or twice", len(sent), len(got)-len(sent))
		}
	})
}

// Jobs that were fetched behind refused ones are kept until these are accepted: while a campaign sends, none is read twice.
func TestJobsBehindRefusedOnesAreReadOnce(t *testing.T) {
	t.Parallel()
	const jobs = 8000 // a fetch brings some 1,700, of which 500 are offered at once
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	for piece := range slices.Chunk(numbered("b", 0, jobs), 1000) {
		r.produceIDs(r.jobs(), 0, "b", piece)
	}
	s, registry := newStayers("b", 200), newRegistry()
	defer s.run(t, 50)()
	c := r.start(s.fake, func(o *Options) { o.Handler, o.Registerer = s, registry })
	r.eventually("all is sent", func() bool { return c.count() == jobs })
	if read := testutil.ToFloat64(c.metrics.records.WithLabelValues("ingress")); read > jobs*3 { // some, if the machine stood still
		t.Errorf("%v records were read for %d jobs", read, jobs)
	}
}

// The bytes of jobs behind long-refused ones go back to the budget. These jobs are read again afterwards.
func TestJobsBehindRefusedOnesAreDropped(t *testing.T) {
	t.Parallel()
	const jobs = 1600
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	r.produceIDs(r.jobs(), 0, "b", numbered("b", 0, jobs))
	s := newStayers("b", 0)
	c := r.start(s.fake, func(o *Options) { o.Handler = s })
	r.eventually("one piece is held", func() bool {
		held := c.budget.inUse() / record.Overhead
		return s.calls() > 0 && held >= offerJobs && held < offerJobs*3/2
	})
	s.resize(200)
	defer s.run(t, 50)()
	r.eventually("all is sent", func() bool { return c.count() == jobs })
	if !slices.Equal(c.orderOf("b"), numbered("b", 0, jobs)) {
		t.Error("out of order, or twice")
	}
}

// A campaign that stands still keeps its partition, what lies behind it included: nothing is fetched or offered, no
// offset is committed, little memory is held, and that is no standstill. It goes on at once.
func TestBlockedPartitionRests(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(2, r.jobs(), r.opt.LaneTopic)
		r.produceIDs(r.jobs(), 0, "b", numbered("b", 0, 5))
		r.produceIDs(r.jobs(), 0, "other", numbered("o", 0, 5))
		for i := range 10 { // more than a fetch holds
			large := make([]kafka.Record, 0, 10)
			for k := range 10 {
				rec := job("b", fmt.Sprintf("large-%04d", 10*i+k))
				rec.Value = kafka.NewBytes(make([]byte, 8<<10))
				large = append(large, rec)
			}
			r.produce(r.jobs(), 0, large...)
		}
		r.produceIDs(r.jobs(), 0, "other", numbered("last", 0, 1))
		s := newStayers("b", 3)
		registry := newRegistry()
		c := r.start(s.fake, func(o *Options) {
			o.Handler, o.Watchdog, o.Registerer = s, time.Second, registry
		})
		r.eventually("blocked", func() bool { return s.calls() > 0 && gathered(t, registry, "pacer_partitions_blocked") == 1 })
		r.produceIDs(r.jobs(), 1, "other", numbered("elsewhere", 0, 3))
		r.eventually("the other partition goes on", func() bool { return c.saw("elsewhere-0002") })
		calls, fetches, held := s.calls(), c.fetches("ingress"), c.budget.inUse()
		time.Sleep(2500 * time.Millisecond)
		if n := s.calls() - calls; n > 1 {
			t.Errorf("%d offers of what stands still", n)
		}
		if n := c.fetches("ingress") - fetches; n > 7 { // long polls of the other partition
			t.Errorf("%v fetches", n)
		}
		// The bytes of one fetch, with overhead, the long poll of the other partition, and what is counted beyond.
		if most := int64(maxFetchBytes*3 + 50*record.Overhead); held > most || c.budget.inUse() > most {
			t.Errorf("%d and %d bytes held", held, c.budget.inUse())
		}
		if at := r.committed(r.jobs(), 0); at > 0 {
			t.Errorf("committed %d", at)
		}
		if why, _ := c.Stalled(); why != "" {
			t.Errorf("taken for a standstill: %s", why)
		}
		if c.saw("last-0000") {
			t.Error("what lies behind was read")
		}
		s.resize(1000)
		began := time.Now()
		s.send(t.Context(), 1)
		r.eventually("the next one is taken", func() bool { return s.calls() > calls })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %s to go on", took)
		}
		defer s.run(t, 50)()
		r.eventually("all is sent", func() bool { return c.saw("last-0000") && len(c.orderOf("b")) == 105 })
		r.eventually("all is committed", func() bool { return r.committed(r.jobs(), 0) == 111 })
		if n := gathered(t, registry, "pacer_partitions_blocked"); n != 0 {
			t.Errorf("%v partitions are blocked", n)
		}
	})
}

// Word of room that comes between an offer and its answer is heard.
func TestBlockedHearsOfRoomEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	r.produceIDs(r.jobs(), 0, "b", numbered("b", 0, 20))
	s := &early{fake: newFake()}
	began := time.Now()
	c := r.start(s.fake, func(o *Options) { o.Handler = s })
	r.eventually("all seen", func() bool { return c.count() == 20 })
	if took := time.Since(began); took > blockedProbe {
		t.Errorf("took %s", took)
	}
}

// early refuses the first offer, and says that there is room before it answers.
type early struct {
	*fake
	once sync.Once
}

func (e *early) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	e.once.Do(func() {
		refused = jobs
		jobs[0].Source.GrantCapacity(jobs[0].Campaign, 100)
	})
	if refused != nil {
		return refused, nil
	}
	return e.fake.Offer(ctx, jobs)
}

// A rebalance does not wait for what is blocked: the next owner reads it, and nothing is lost or sent twice.
func TestBlockedPartitionMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(2, r.jobs(), r.opt.LaneTopic)
	for p := range 2 {
		r.produceIDs(r.jobs(), p, "b", numbered(fmt.Sprint("b", p), 0, 300))
	}
	first := newStayers("b", 10)
	c := r.start(first.fake, func(o *Options) { o.Handler = first })
	r.eventually("blocked", func() bool { return first.calls() >= 2 })
	second := newStayers("b", 10)
	d := r.start(second.fake, func(o *Options) { o.Handler = second })
	r.eventually("the second has a partition", func() bool { return second.calls() > 0 })
	defer first.run(t, 5)()
	defer second.run(t, 5)()
	r.eventually("all is sent", func() bool { return c.count()+d.count() >= 600 })
	for _, f := range []*fake{c.fake, d.fake} {
		f.mu.Lock()
		for id, n := range f.seen {
			if n != 1 {
				t.Errorf("%s was sent %d times", id, n)
			}
		}
		f.mu.Unlock()
	}
	if n := c.count() + d.count(); n != 600 {
		t.Errorf("%d jobs of 600", n)
	}
}

// gathered is the value of a gauge or a counter without labels.
func gathered(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
