package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/requeue"
)

// ofCampaign are n jobs of a campaign, numbered from first on.
func ofCampaign(id string, first, n int) (jobs []job) {
	for i := range n {
		jobs = append(jobs, job{campaign: id, id: fmt.Sprintf("%s-%d", id, first+i)})
	}
	return jobs
}

// blocked is a campaign whose jobs stay in ingress.
func (s *stack) blocked(id string, rate float64) {
	s.t.Helper()
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, overflow) VALUES ($1, $2, 'block')`, id, rate)
}

// noLanes asserts that nothing was ever written to a lane.
func (s *stack) noLanes() {
	s.t.Helper()
	if n := s.written(requeue.LaneTopic(s.prefix)); n != 0 {
		s.t.Errorf("%d records were written to lanes", n)
	}
}

// TestBlockedCampaignWaitsInIngress: a campaign with its own topic is sent at its rate from ingress. While it is paused, it costs nothing
// and its jobs stay. It resumes at once, also on a new daemon, without loss or repeats.
func TestBlockedCampaignWaitsInIngress(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2, settings: "pacing: {max_open_age: 1s}"})
	const jobs, rate = 2400, 400
	s.blocked("b", rate)
	s.publish(ofCampaign("b", 0, jobs))
	one := s.started("one")
	// An eighth sent, and two seconds' worth in memory, leave both partitions far from their ends.
	s.await(20*time.Second, "a part", func() bool { return s.receiver.count("b") >= jobs/8 })
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'b'`)
	s.await(5*time.Second, "both partitions to be blocked", func() bool { return one.metric("pacer_partitions_blocked") == 2 })
	time.Sleep(300 * time.Millisecond) // what was in flight arrives
	before := s.receiver.count("b")
	fetches := one.metric("pacer_fetches_total")
	time.Sleep(3 * time.Second) // longer than max_open_age
	if n := s.receiver.count("b"); n != before {
		t.Errorf("%d were sent while paused", n-before)
	}
	if n := one.metric("pacer_fetches_total") - fetches; n > 10 {
		t.Errorf("%v fetches while nothing could be taken", n)
	}
	s.noLanes()
	one.stop()

	two := s.started("two")
	s.await(10*time.Second, "both partitions to be blocked again", func() bool { return two.metric("pacer_partitions_blocked") == 2 })
	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'b'`)
	resumed := s.receiver.now()
	s.await(5*time.Second, "the first after the resume", func() bool { return s.receiver.count("b") > before })
	list := s.receiver.arrivals("b")
	if took := time.Duration(list[before].at-resumed) * time.Microsecond; took > time.Second {
		t.Errorf("the resume took %s", took)
	}
	s.arrive(30*time.Second, "b", jobs)
	time.Sleep(500 * time.Millisecond)
	s.allOnce("b", jobs)
	s.withinBound("b", rate)
	s.noLanes()
	if n := two.log.lines("level=WARN") + two.log.lines("level=ERROR"); n != 0 {
		t.Errorf("%d warnings", n)
	}
	two.stop()
}

// TestBlockedCampaignCancelledAndCompany: others behind a blocked campaign wait; cancelling settles
// its jobs where they are and lets the others go on within a second.
func TestBlockedCampaignCancelledAndCompany(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 1})
	s.blocked("b", 100)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'b'`)
	s.campaign("other", 1000)
	const waiting = 3000 // more than one fetch holds
	large := ofCampaign("b", 0, waiting)
	for i := range large {
		large[i].payload = make([]byte, 300)
	}
	s.publish(append(append(large[:10:10], job{campaign: "other", id: "other-first"}), large[10:]...))
	s.publish(ofCampaign("other", 0, 100))
	d := s.started("one")
	s.await(10*time.Second, "the partition to be blocked", func() bool { return d.metric("pacer_partitions_blocked") == 1 })
	time.Sleep(time.Second)
	if n := s.receiver.count("other"); n > 1 {
		t.Errorf("%d jobs behind the blocked campaign were sent", n)
	}
	s.noLanes()
	s.sql(`UPDATE pacer.campaigns SET status = 'cancelled' WHERE id = 'b'`)
	cancelled := s.receiver.now()
	s.await(10*time.Second, "the others", func() bool { return s.receiver.count("other") == 101 })
	list := s.receiver.arrivals("other")
	if took := time.Duration(list[1].at-cancelled) * time.Microsecond; took > time.Second {
		t.Errorf("the others went on %s after the cancellation", took)
	}
	if n := d.metric(`pacer_jobs_settled_total{campaign="b",outcome="cancelled"}`); n != waiting {
		t.Errorf("%v of %d settled as cancelled", n, waiting)
	}
	if n := s.receiver.count("b"); n != 0 {
		t.Errorf("%d of a paused campaign were sent", n)
	}
	d.stop()
}
