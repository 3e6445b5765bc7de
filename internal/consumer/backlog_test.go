package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// waiting is what a consumer says of a campaign in its lanes.
func (c *running) waiting(campaign string) (n int64) {
	for _, lane := range c.Backlog().Lanes {
		for _, w := range lane.Waiting {
			if w.Campaign == delivery.CampaignHash(campaign) {
				n += w.Jobs
			}
		}
	}
	return n
}

// The backlog of a lane is counted exactly, whether its campaign stands still or sends. The next generation goes on from that count
// before it reads anything again.
func TestBacklogOfLanes(t *testing.T) {
	onBrokers(t, 1, 2, func(t *testing.T, r *rig) {
		r.produceIDs(r.opt.LaneTopic, 0, "still", numbered("s", 0, 300))
		r.produceIDs(r.opt.LaneTopic, 1, "still", numbered("t", 0, 50))
		r.produceIDs(r.opt.LaneTopic, 0, "busy", numbered("b", 0, 200))
		first := newQueues(5, "still", "busy")
		first.of["still"].paused = true
		c := r.start(first)
		r.eventually("all counted", func() bool { return c.waiting("still") == 350 && c.waiting("busy") == 200 })
		r.eventually("ten sent", func() bool { first.send(everything); return c.count() >= 10 })
		left := 200 - int64(c.count())
		if got := c.waiting("busy"); got != left {
			t.Errorf("%d are counted, %d wait", got, left)
		}
		c.stop()
		if got := c.waiting("still"); got != 350 {
			t.Errorf("%d between two generations, want the last 350", got)
		}
		d := r.start(newQueues(0, "still", "busy"))
		r.eventually("the second has them", func() bool { return len(d.Backlog().Lanes) == 2 })
		if got := []int64{d.waiting("still"), d.waiting("busy")}; got[0] != 350 || got[1] != left {
			t.Errorf("%v after the restart, want 350 and %d", got, left)
		}
		d.stop()
	})
}

// of is what a consumer says of a campaign in ingress and timers.
func (c *running) of(campaign string) (n delivery.CampaignCount) {
	b := c.Backlog()
	for _, one := range append(b.Ingress, b.Timers...) {
		if one.Campaign == delivery.CampaignHash(campaign) {
			n = n.Plus(one)
		}
	}
	return n
}

// Jobs that no reader gets to are counted: by campaign in ingress and timers, in timers also by destination. So it is after a restart, and
// while the broker sends a little at a time.
func TestBacklogOfIngressAndTimers(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		timer, made := r.timer(time.Hour), 0
		put := func(topic, campaign string, n int, why delivery.Reason) {
			records := make([]kafka.Record, n)
			for i := range records {
				made++
				records[i] = job(campaign, fmt.Sprint(made), delivery.HeaderReason, string(why), delivery.HeaderOrigin, fmt.Sprint("elsewhere/0/", made),
					delivery.HeaderDestination, "shop-"+campaign)
				records[i].Time = time.Now()
			}
			r.produce(topic, 0, records...)
		}
		for range 4 { // more than the timer's reader holds
			put(timer, "a", 500, delivery.ReasonRetry)
			put(timer, "b", 250, delivery.ReasonNotBefore)
		}
		put(timer, "c", 10, delivery.ReasonKeyLine)
		put(timer, "d", 10, delivery.ReasonNoZone)
		put(r.jobs(), "kept", 3000, "")
		f := newFake()
		f.first = func(jobs []*delivery.Job) (refuse bool) { return jobs[0].From == delivery.FromIngress }
		one := r.start(f)
		r.eventually("all to be counted", func() bool {
			a, b, kept, to := one.of("a"), one.of("b"), one.of("kept"), one.Backlog().Destinations
			return to["shop-a"] == 2000 && to["shop-b"] == 1000 && to["shop-c"] == 10 && len(to) == 4 && a.Jobs == 2000 && a.Unread == 2000 && a.Retrying == 2000 &&
				b.Jobs == 1000 && b.Retrying == 0 && b.Due < delivery.DueUnknown && one.of("c").Due == delivery.DueUnknown && one.of("d").Due == delivery.DueUnknown && kept.Jobs == 3000
		})
		put(timer, "a", 1, delivery.ReasonRetry)
		r.eventually("one more", func() bool { return one.of("a").Jobs == 2001 })
		one.stop()
		if n := one.of("a").Jobs; n != 0 {
			t.Errorf("a daemon that has left counts %d", n)
		}
		put(timer, "b", 1, delivery.ReasonNotBefore)

		r.opt.Timers = []Timer{{Topic: timer, Delay: time.Millisecond}}
		two := r.start(newFake()) // takes and settles all
		r.eventually("nothing to be left", func() bool {
			return two.count() == 2001+1001+10+10+3000 && len(two.Backlog().Destinations) == 0 && two.of("a").Jobs+two.of("b").Jobs+two.of("c").Jobs+two.of("kept").Jobs == 0
		})
		two.stop()
	})
}

// Jobs that are read within seconds are not read ahead for their count; once they stay, they are counted.
func TestWhatIsReadSoonIsReadOnce(t *testing.T) {
	const jobs = 20_000
	r := inProcess(t, 1, 1)
	r.produceIDs(r.jobs(), 0, "b", numbered("b", 0, jobs))
	q := newQueues(2000, "b")
	stop := q.run(t, 8)
	c, began, ahead := r.start(q), time.Now(), int64(0)
	r.eventually("a part is sent", func() bool { ahead = max(ahead, c.of("b").Unread); return c.count() > jobs*3/4 })
	if took := time.Since(began); took < countAhead*countEvery && ahead > 0 { // a slower machine counts with reason
		t.Errorf("%d jobs are counted ahead of what took %s", ahead, took)
	}
	stop()
	r.eventually("the rest to be counted", func() bool { return c.of("b").Jobs == jobs-int64(c.count()) })
}

// Jobs that are deleted from the log before they are read are not counted any more, though others of their partition are open.
func TestBacklogOfALogThatWasCutOff(t *testing.T) {
	const jobs = 10_000 // more than is read before there is room
	r := inProcess(t, 1, 1)
	r.produceIDs(r.jobs(), 0, "b", numbered("b", 0, jobs))
	q := newQueues(0, "b")
	c := r.start(q)
	r.eventually("all to be counted", func() bool { return c.of("b").Jobs == jobs })
	if err := r.cluster.DeleteRecords(r.jobs(), 0, jobs); err != nil {
		t.Fatal(err)
	}
	r.produceIDs(r.jobs(), 0, "b", numbered("late", 0, 10))
	q.resize("b", 2*jobs) // they are taken, and not sent
	taken := func() (n int64) {
		q.change("b", func(b *queue) { n = int64(len(b.jobs)) })
		return n
	}
	r.eventually("the rest is taken", func() bool { return c.lostRecords(lostDeleted) == float64(jobs+10-taken()) })
	r.eventually("what is left to be counted", func() bool { // with the few that were read before, and given back
		is := c.of("b")
		return is.Unread == 0 && is.Jobs >= taken() && is.Jobs < jobs
	})
}
