package consumer

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
	"github.com/pacer/pacer/internal/record"
)

// Jobs that stay in ingress are all sent, in order and once, with a queue far smaller than a fetch, also over a restart.
func TestBlockedJobsComeInOrder(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		ids := numbered("b", 0, 1500)
		r.produceIDs(r.jobs(), 0, "b", ids)
		first := newQueues(40, "b")
		stop := first.run(t, 10)
		c := r.start(first)
		r.eventually("a part is sent", func() bool { return c.count() > 300 })
		stop()
		c.stop()
		second := newQueues(40, "b")
		defer second.run(t, 20)()
		d := r.start(second)
		r.eventually("all is committed", r.allCommitted(int64(len(ids)), 1, r.jobs()))
		d.stop()
		if sent, rest := c.orderOf("b"), d.orderOf("b"); !slices.Equal(slices.Concat(sent, rest), ids) {
			t.Errorf("%d before the restart and %d after it, not all, or out of order, or twice", len(sent), len(rest))
		}
	})
}

// Jobs that were fetched behind refused ones are kept until these are accepted: while a campaign sends, none is read twice. So it is where
// other partitions take the room, where there is room only now and then, and where jobs take seconds.
func TestJobsBehindRefusedOnesAreReadOnce(t *testing.T) {
	t.Parallel()
	const partitions, jobs = 4, 8000 // a fetch brings some 1,700, of which 500 are offered at once
	for name, tc := range map[string]struct{ capacity, sent int }{"often": {200, 50}, "seldom": {2000, 4}, "slowly": {200, 4}} {
		t.Run(name, func(t *testing.T) {
			r := inProcess(t, partitions, 1)
			for p := range partitions {
				r.produceIDs(r.jobs(), p, "b", numbered(fmt.Sprint("b", p, "-"), 0, jobs/partitions))
			}
			q := newQueues(tc.capacity, "b")
			defer q.run(t, tc.sent)()
			c, began := r.start(q), time.Now()
			r.eventually("all is sent", func() bool { return c.count() == jobs })
			read, took := testutil.ToFloat64(c.metrics.records.WithLabelValues("ingress")), time.Since(began)
			if read > jobs*2 && took < 5*time.Second { // a slow machine lets some jobs wait for longer than they are kept
				t.Errorf("%v records were read for %d jobs in %s", read, jobs, took)
			}
		})
	}
}

// A campaign that stands still keeps its partition, what lies behind it included: nothing is fetched or offered, no
// offset is committed, little memory is held, and that is no standstill. It goes on at once.
func TestBlockedPartitionRests(t *testing.T) {
	onBrokers(t, 2, 1, func(t *testing.T, r *rig) {
		r.produceIDs(r.jobs(), 0, "b", numbered("b", 0, 5))
		r.produceIDs(r.jobs(), 0, "other", numbered("o", 0, 5))
		r.produceIDs(r.jobs(), 0, "b", numbered("large", 0, 100), make([]byte, 8<<10)) // more than a fetch holds
		r.produceIDs(r.jobs(), 0, "other", numbered("last", 0, 1))
		q := newQueues(3, "b")
		c := r.start(q, func(o *Options) { o.Watchdog = time.Second })
		r.eventually("blocked", func() bool { return q.calls() > 0 && metric.Value(c.metrics.blocked) == 1 })
		r.produceIDs(r.jobs(), 1, "other", numbered("elsewhere", 0, 3))
		r.eventually("the other partition goes on", func() bool { return c.saw("elsewhere-0002") })
		calls, fetches, held := q.calls(), c.fetches("ingress"), c.budget.inUse()
		time.Sleep(2500 * time.Millisecond)
		if n := q.calls() - calls; n > 1 {
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
		q.resize("b", 1000)
		began := time.Now()
		q.send(1)
		r.eventually("the next one is taken", func() bool { return q.calls() > calls })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %s to go on", took)
		}
		defer q.run(t, 50)()
		r.eventually("all is sent", func() bool { return c.saw("last-0000") && len(c.orderOf("b")) == 105 })
		r.eventually("all is committed", func() bool { return r.committed(r.jobs(), 0) == 111 })
		if n := metric.Value(c.metrics.blocked); n != 0 {
			t.Errorf("%v partitions are blocked", n)
		}
	})
}

// Word of room that comes between an offer and its answer is heard.
func TestBlockedHearsOfRoomEarly(t *testing.T) {
	r := inProcess(t, 1, 1)
	r.produceIDs(r.jobs(), 0, "b", numbered("b", 0, 20))
	f := newFake()
	var once sync.Once
	f.first = func(jobs []*delivery.Job) (refuse bool) {
		once.Do(func() {
			refuse = true
			jobs[0].Source.GrantCapacity(jobs[0].Campaign, 100)
		})
		return refuse
	}
	began := time.Now()
	c := r.start(f)
	r.eventually("all seen", func() bool { return c.count() == 20 })
	if took := time.Since(began); took > blockedProbe {
		t.Errorf("took %s", took)
	}
}

// A rebalance does not wait for what is blocked: the next owner reads it, and nothing is lost or sent twice.
func TestBlockedPartitionMoves(t *testing.T) {
	r := inProcess(t, 2, 1)
	for p, name := range []string{"b0", "b1"} {
		r.produceIDs(r.jobs(), p, "b", numbered(name, 0, 300))
	}
	first, second := newQueues(10, "b"), newQueues(10, "b")
	c := r.start(first)
	r.eventually("blocked", func() bool { return first.calls() >= 2 })
	d := r.start(second)
	r.eventually("the second has a partition", func() bool { return second.calls() > 0 })
	defer first.run(t, 5)()
	defer second.run(t, 5)()
	r.eventually("all is sent", func() bool { return c.count()+d.count() >= 600 })
	handedOnce(t, 600, c.fake, d.fake)
}
