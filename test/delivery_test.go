package test

import (
	"fmt"
	"testing"
	"time"
)

// TestKilledDaemonLosesNothing: 36,000 jobs of five campaigns and two that share a quota, mixed on shared partitions,
// three daemons, one of them killed with -9 in the middle and started again.
func TestKilledDaemonLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 6})
	rates := map[string]float64{"c2": 2, "c60": 60, "c400": 400, "c1000": 1000, "c2500": 2500}
	numbers := map[string]int{"c2": 20, "c60": 300, "c400": 2000, "c1000": 5000, "c2500": 12_500, "q1": 250, "q2": 250}
	for id, rate := range rates {
		s.campaign(id, rate)
	}
	s.sql(`INSERT INTO pacer.quotas (id) VALUES ('shared')`)
	s.sql(`INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('shared', '10 seconds', 300)`)
	for _, id := range []string{"q1", "q2"} {
		s.campaign(id, 200)
		s.sql(`INSERT INTO pacer.campaign_quotas (campaign_id, quota_id) VALUES ($1, 'shared')`, id)
	}
	daemons := s.fleet("one", "two", "three")
	jobs := mix(numbers)
	s.publish(jobs)
	s.await(30*time.Second, "a third of the jobs", func() bool { return s.receiver.count("") > len(jobs)/3 })
	inFlight := s.buffered()
	daemons[0].kill()
	killed := s.receiver.now()
	time.Sleep(2 * time.Second)
	daemons[0].launch()
	s.arrive(90*time.Second, "", len(jobs))
	time.Sleep(time.Second) // for duplicates that come late
	for _, d := range daemons {
		d.stop()
	}
	distinct, duplicates := s.receiver.accepted("")
	t.Logf("%d jobs, %d distinct, %d duplicates; killed after %.1f s, all there after %.1f s; in flight at the kill at most %d",
		len(jobs), distinct, duplicates, float64(killed)/1e6, float64(s.receiver.now())/1e6, inFlight)
	if distinct != len(jobs) {
		t.Errorf("%d of %d jobs arrived", distinct, len(jobs))
	}
	if duplicates > inFlight {
		t.Errorf("%d duplicates, more than the %d that may have been in flight", duplicates, inFlight)
	}
	for id, rate := range rates {
		s.withinBound(id, rate)
	}
	shared := append(s.receiver.arrivals("q1"), s.receiver.arrivals("q2")...)
	sortByTime(shared)
	s.withinWindow(shared, 300, 10*time.Second)
	if hops := s.maxHops(); hops > 1 {
		t.Errorf("a job made %d hops", hops)
	}
}

// buffered bounds the jobs that a crash of a daemon may repeat: calls in flight per sink, one batch of relayed jobs per partition,
// and jobs settled since the last commit (100 ms or 1,000 jobs a partition).
func (s *stack) buffered() int {
	const sinkCalls, perPartition = 256, 1000
	sentIn := s.between("", s.receiver.now()-1_000_000, forever) // a commit every 100 ms, acknowledged within some more on a busy machine
	return min(sinkCalls+sentIn, sinkCalls+6*perPartition)
}

// TestSlowNeighbourSlowsNobody: twenty thousand jobs of a campaign at 1/s lie ahead of a fast one on the same
// partitions; a hundred paused campaigns have theirs in between.
func TestSlowNeighbourSlowsNobody(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 6})
	s.campaign("slow", 1)
	s.campaign("fast", 2000)
	jobs := ofCampaign("slow", 0, 20_000)
	for c := range 100 {
		id := fmt.Sprintf("paused-%d", c)
		s.sql(`INSERT INTO pacer.campaigns (id, send_rate, status) VALUES ($1, 500, 'paused')`, id)
		jobs = append(jobs, ofCampaign(id, 0, 50)...)
	}
	const fast = 8000
	s.publish(append(jobs, ofCampaign("fast", 0, fast)...))
	began := s.receiver.now()
	d := s.started("one")
	s.await(40*time.Second, "the fast campaign's jobs", func() bool { return s.receiver.count("fast") >= fast })
	list := s.receiver.arrivals("fast")
	took := float64(list[len(list)-1].at-list[0].at) / 1e6
	t.Logf("fast: first after %.2f s, %d in %.2f s (%.0f/s); slow: %d", float64(list[0].at-began)/1e6, fast, took,
		float64(fast)/took, s.receiver.count("slow"))
	s.withinBound("fast", 2000)
	s.withinBound("slow", 1)
	if n := s.receiver.count("slow"); n < 2 { // four seconds at 1/s
		t.Errorf("%d jobs of the slow campaign were sent", n)
	}
	paused := func() int { return s.receiver.count("") - s.receiver.count("fast") - s.receiver.count("slow") }
	if n := paused(); n != 0 {
		t.Errorf("%d jobs of paused campaigns were sent", n)
	}
	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id LIKE 'paused-%'`)
	s.await(30*time.Second, "the paused campaigns' jobs", func() bool { return paused() >= 5000 })
	if _, duplicates := s.receiver.accepted(""); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	d.stop()
}
