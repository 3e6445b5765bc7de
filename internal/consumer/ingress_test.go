package consumer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// Jobs that were written while a clock was ahead hold a timer for one delay together, however many fetches they take.
func TestAClockThatWasAheadStopsNoTimer(t *testing.T) {
	const delay = 2 * time.Second
	r := inProcess(t, 1, 1)
	timer := r.timer(delay)
	write := func(id string, at time.Time) {
		rec := job("c", id, delivery.HeaderOrigin, "jobs/0/7", delivery.HeaderEnqueuedAt, at.Format(time.RFC3339Nano))
		rec.Value = kafka.NewBytes(make([]byte, timerFetchBytes/4))
		r.produce(timer, 0, rec)
	}
	began := time.Now()
	for _, id := range numbered("ahead", 0, 20) {
		write(id, began.Add(time.Hour))
	}
	write("bystander", began)
	c := r.start(newFake())
	r.eventually("all seen", func() bool { return c.count() == 21 })
	if took := c.at["bystander"].Sub(c.at["ahead-0000"]); took > delay*3/2 { // each fetch would take one
		t.Errorf("the bystander came %s after the first one", took)
	}
	if early := c.at["ahead-0000"].Sub(began); early < delay {
		t.Errorf("a job of a timer came after %s", early)
	}
}

// A campaign that keeps its jobs in ingress, in a topic of its own, leaves most of the memory to other topics, while it is paused and while it is
// sent slowly.
func TestACampaignThatBlocksLeavesMemoryToOthers(t *testing.T) {
	t.Parallel()
	const limit, partitions = 4 << 20, 16
	for name, tc := range map[string]struct {
		jobs, size, capacity int
		slow                 bool
	}{"paused, small": {1500, 10, 20, false}, "paused, large": {3, 300 << 10, 4, false}, "slow": {1500, 10, 20, true}} {
		t.Run(name, func(t *testing.T) {
			r := inProcess(t, partitions, 1)
			other := r.jobs() + ".other"
			r.create(1, other)
			for p := range partitions {
				r.produceIDs(r.jobs(), p, "b", numbered(fmt.Sprint("b", p), 0, tc.jobs), make([]byte, tc.size))
			}
			r.opt.Ingress = append(r.opt.Ingress, other)
			q := newQueues(tc.capacity, "b")
			c := r.start(q, func(o *Options) { o.MaxBufferBytes = limit })
			if tc.slow {
				defer q.run(t, 1)()
				r.eventually("each partition waits", func() bool { return q.calls() > 4*partitions })
			} else {
				r.eventually("the campaign waits", func() bool { return q.calls() > partitions })
				q.change("b", func(b *queue) { // it is paused
					b.capacity = 0
					for _, j := range slices.Backward(b.jobs) {
						b.waiting[j.Source] = true
						giveBack(j)
					}
					b.jobs = nil
				})
			}
			time.Sleep(2 * refusedFor)
			if held := c.budget.inUse(); held > limit/4+limit/8 {
				t.Errorf("%d KiB of %d are held", held>>10, limit>>10)
			}
			for i := range 10 {
				id := fmt.Sprint("bystander-", i)
				r.produceIDs(other, 0, "bystander", []string{id})
				began := time.Now()
				r.eventually("a job of another topic", func() bool { return c.saw(id) })
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("a job of another topic took %s", took)
				}
			}
			q.resize("b", 1000)
			defer q.run(t, 1000)()
			r.eventually("all is sent", func() bool { return len(c.orderOf("b")) == partitions*tc.jobs })
			for p := range partitions {
				of := func(id string) bool { return !strings.HasPrefix(id, fmt.Sprint("b", p, "-")) }
				if got := slices.DeleteFunc(c.orderOf("b"), of); !slices.Equal(got, numbered(fmt.Sprint("b", p), 0, tc.jobs)) {
					t.Errorf("partition %d: out of order, or twice", p)
				}
			}
		})
	}
}
