package consumer

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// beating runs heartbeats with a bound of a minute, and hands over a way to let time pass.
func beating(t *testing.T, test func(t *testing.T, b *heartbeats, logs *logBook)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		logs := &logBook{}
		b := &heartbeats{
			log: logs.Logger(), stalled: newMetrics(prometheus.NewRegistry(), newBudget(64<<20)).stalled,
			bound: time.Minute, hearts: map[*heart]bool{},
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.run(ctx) })
		test(t, b, logs)
		stop()
		running.Wait()
	})
}

// TestAStepThatDoesNotEnd: it is told once, with what it waits for, and shown, and so is its end; the daemon is not well while no reader
// works. A reader that waits for jobs, room or memory does not stand still.
func TestAStepThatDoesNotEnd(t *testing.T) {
	beating(t, func(t *testing.T, b *heartbeats, logs *logBook) {
		var stuck, other heart
		end := b.begin(&stuck, "jobs/0", "ingress")
		defer b.begin(&other, "lanes/1", "lane")()
		other.rest()
		stuck.beat("a fetch to end")
		time.Sleep(59 * time.Second)
		if why, _ := b.still(time.Now()); why != "" || logs.String() != "" {
			t.Fatalf("too early: %q %s", why, logs)
		}
		time.Sleep(31 * time.Second)
		shown := func() float64 { return testutil.ToFloat64(b.stalled.WithLabelValues("ingress")) }
		if why, over := b.still(time.Now()); why != "jobs/0 has stood still for 1m30s, waiting for a fetch to end" || over != 30*time.Second {
			t.Errorf("%q, %s over", why, over)
		}
		told := logs.lines("level=ERROR", "partition=jobs/0", "waits_for=\"a fetch to end\"")
		if len(told) != 1 || len(logs.Lines("")) != 1 || shown() != 1 { // and the other rests
			t.Errorf("told %d times, shown %v: %s", len(told), shown(), logs)
		}
		other.beat("a fetch to end")
		if why, _ := b.still(time.Now()); why != "" {
			t.Errorf("another reader works, and yet: %s", why)
		}
		other.rest()
		stuck.beat("its next step")
		time.Sleep(20 * time.Second)
		if why, _ := b.still(time.Now()); why != "" || shown() != 0 || len(logs.lines("moves on")) != 1 {
			t.Errorf("after it moved: %q %s", why, logs)
		}
		time.Sleep(90 * time.Second)
		end()
		if why, _ := b.still(time.Now()); why != "" || shown() != 0 {
			t.Errorf("after it has ended: %q, shown %v", why, shown())
		}
	})
}

// TestACommitterThatStandsStill: nothing is committed, even if the readers go on.
func TestACommitterThatStandsStill(t *testing.T) {
	beating(t, func(t *testing.T, b *heartbeats, _ *logBook) {
		var commits, reads heart
		defer b.begin(&commits, "commits", labelGroup)()
		defer b.begin(&reads, "jobs/0", "ingress")()
		time.Sleep(70 * time.Second)
		reads.beat("a fetch to end")
		if why, _ := b.still(time.Now()); !strings.HasPrefix(why, "commits has stood still") {
			t.Errorf("%q", why)
		}
		commits.beat("the broker")
		if why, _ := b.still(time.Now()); why != "" {
			t.Errorf("%q", why)
		}
	})
}

// TestAStuckPartitionIsNoticed: a stuck handler is noticed where it is stuck and nowhere else, though other partitions wait for their turn;
// the daemon is not well once no other partition works.
func TestAStuckPartitionIsNoticed(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		f := keeping(func(j *delivery.Job) bool { return j.Campaign == "slow" })
		stuck, released := r.jobs()+"/0", make(chan struct{})
		f.first = func(jobs []*delivery.Job) (refuse bool) { // it ignores its context
			if jobs[0].Source.Name() == stuck {
				<-released
			}
			return false
		}
		c := r.start(f, func(o *Options) { o.Watchdog = 2 * time.Second })
		r.produceIDs(r.opt.LaneTopic, 0, "slow", []string{"waits for its turn"})
		r.eventually("the lane is read", func() bool { return c.count() == 1 })
		r.produceIDs(r.jobs(), 0, "c", []string{"stuck"})
		r.eventually("it is noticed", func() bool {
			why, _ := c.Stalled()
			return len(r.logs.lines("level=ERROR")) == 1 && strings.HasPrefix(why, stuck)
		})
		time.Sleep(time.Second)
		r.said(1, "level=ERROR", stuck, "the handler to take")
		r.said(1, "level=ERROR")
		close(released)
		r.says(1, "moves on")
		if why, _ := c.Stalled(); why != "" {
			t.Errorf("after it moved: %s", why)
		}
		c.stop()
	})
}
