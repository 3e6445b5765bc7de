package test

import (
	"slices"
	"testing"
	"time"
)

// changeRate sets the campaign's rate and returns the receiver's time at which the change was committed.
func (s *stack) changeRate(campaign string, rate int) int64 {
	s.t.Helper()
	s.sql(`UPDATE pacer.campaigns SET send_rate = $2 WHERE id = $1`, campaign, rate)
	return s.receiver.now()
}

// rateChanges plays n changes between 50/s and 500/s on a campaign whose jobs wait in a lane, and returns how long each
// took to show in the spacing at the receiver.
func (s *stack) rateChanges(n int) (delays []time.Duration) {
	s.t.Helper()
	s.campaign("c", 50)
	s.publish(mix(map[string]int{"c": 20_000}))
	s.await(30*time.Second, "the first jobs", func() bool { return s.receiver.count("c") > 400 })
	low, high := 50, 500
	for i := range n {
		rate := high
		if i%2 == 1 {
			rate = low
		}
		time.Sleep(1200*time.Millisecond + time.Duration(i*37%100)*time.Millisecond)
		at := s.changeRate("c", rate)
		time.Sleep(400 * time.Millisecond)
		delays = append(delays, s.shows(at, rate))
	}
	return delays
}

// shows is how long after at the spacing of arrivals became that of the rate: the first gap of which the median of
// three from there on is nearer to the new spacing than to the old one.
func (s *stack) shows(at int64, rate int) time.Duration {
	s.t.Helper()
	list := s.receiver.arrivals("c")
	first := slices.IndexFunc(list, func(a arrival) bool { return a.at >= at })
	for i := max(first, 1); i+2 < len(list); i++ {
		gaps := []int64{list[i].at - list[i-1].at, list[i+1].at - list[i].at, list[i+2].at - list[i+1].at}
		slices.Sort(gaps)
		if fast := gaps[1] < 6_000; fast == (rate > 200) {
			return time.Duration(list[i].at-at) * time.Microsecond
		}
	}
	s.t.Fatalf("the change to %d/s does not show", rate)
	return 0
}

// rateIsNeverAbove asserts the bound for changes: never more than the larger rate x 1.03 + 1 in a rolling second.
func (s *stack) rateIsNeverAbove(campaign string, larger float64) {
	s.t.Helper()
	if most := rolling(s.receiver.arrivals(campaign), time.Second); float64(most) > larger*1.03+1 {
		s.t.Errorf("%d in a rolling second, above %.0f x 1.03 + 1", most, larger)
	}
}

// TestRateChangesAct: a change in PostgreSQL acts on jobs that wait in a lane, and never above the larger rate.
func TestRateChangesAct(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 4})
	s.start("one").awaitReady(15 * time.Second)
	s.start("two").awaitReady(15 * time.Second)
	delays := s.rateChanges(6)
	t.Logf("changes showed after %v", delays)
	s.rateIsNeverAbove("c", 500)
}

// TestPauseResumeCancel: each acts within a second, at daemons that hold the jobs in queues and in lanes.
func TestPauseResumeCancel(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 4})
	s.campaign("c", 400)
	s.campaign("other", 300)
	s.start("one").awaitReady(15 * time.Second)
	s.start("two").awaitReady(15 * time.Second)
	s.publish(mix(map[string]int{"c": 12_000, "other": 9_000}))
	s.await(20*time.Second, "jobs of c", func() bool { return s.receiver.count("c") > 1500 })
	status := func(to string) {
		s.sql(`UPDATE pacer.campaigns SET status = $1 WHERE id = 'c'`, to)
		time.Sleep(time.Second)
	}
	status("paused")
	n := s.receiver.count("c")
	time.Sleep(2 * time.Second)
	if more := s.receiver.count("c") - n; more > 0 {
		t.Errorf("%d sent more than a second after the pause", more)
	}
	status("active")
	n = s.receiver.count("c")
	time.Sleep(time.Second)
	if more := s.receiver.count("c") - n; more < 350 {
		t.Errorf("%d sent in the second second after the resume, at 400/s", more)
	}
	status("cancelled")
	n = s.receiver.count("c")
	time.Sleep(3 * time.Second)
	if more := s.receiver.count("c") - n; more > 0 {
		t.Errorf("%d sent more than a second after the cancel", more)
	}
	from, to := s.receiver.arrivals("other")[0].at, s.receiver.now()
	got := rate(s.receiver.arrivals("other"), from, to)
	t.Logf("the other campaign: %.1f/s of 300", got)
	s.withinBound("other", 300)
	s.withinBound("c", 400)
	s.await(40*time.Second, "the other campaign's jobs", func() bool {
		n, _ := s.receiver.accepted("other")
		return n == 9_000
	})
	if _, duplicates := s.receiver.accepted(""); duplicates > 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}
