package test

import (
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/requeue"
)

// changeRate sets the campaign's rate and returns the receiver's time of the commit.
func (s *stack) changeRate(campaign string, rate int) int64 {
	s.t.Helper()
	s.sql(`UPDATE pacer.campaigns SET send_rate = $2 WHERE id = $1`, campaign, rate)
	return s.receiver.now()
}

// rateChanges plays n changes between 50/s and 500/s on a campaign whose jobs wait in a lane, and returns how long each
// took to show in the spacing at the receiver. After each, jobs have to arrive as they do only at the new rate.
func (s *stack) rateChanges(n int) (delays []time.Duration) {
	s.t.Helper()
	const low, high = 50, 500
	const raisedFor, loweredFor, acts = 700, 40, 300 * time.Millisecond // jobs at each rate
	s.campaign("c", low)
	s.publish(mix(map[string]int{"c": (n/2+1)*(raisedFor+high) + 1000}))
	s.await(30*time.Second, "the first jobs, from a lane", func() bool {
		return s.receiver.count("c") > loweredFor && s.written(requeue.LaneTopic(s.prefix)) > 0
	})
	for i := range n {
		if i%2 == 0 {
			at := s.changeRate("c", high)
			// At the lower rate they would take 14 s.
			s.await(8*time.Second, "jobs at the higher rate", func() bool { return s.between("c", at, s.receiver.now()) >= raisedFor })
			delays = append(delays, s.shows(at, high))
			continue
		}
		at := s.changeRate("c", low)
		from := at + acts.Microseconds()
		s.await(8*time.Second, "jobs at the lower rate", func() bool { return s.between("c", from, s.receiver.now()) >= loweredFor })
		lowered := slices.DeleteFunc(s.receiver.arrivals("c"), func(a arrival) bool { return a.at < from })
		if over := overRate(lowered, low*clockError, toleranceOf(low), s.receiver.blur()); over > 1.01 {
			s.t.Errorf("%s after a change to %d/s, a stretch carries %.1f more", acts, low, over)
		}
		delays = append(delays, s.shows(at, low))
	}
	return delays
}

// shows returns how long after at the arrivals took the spacing of the new rate. It takes the first gap whose median of three is nearer
// to the new spacing than to the old one.
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
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 4})
	s.startTwo()
	delays := s.rateChanges(6)
	t.Logf("changes showed after %v", delays)
	slices.Sort(delays)
	if median := delays[len(delays)/2]; median > 200*time.Millisecond { // TestFigureRateChange: 100 ms
		t.Errorf("half of the changes showed after more than %s", median)
	}
	s.rateIsNeverAbove("c", 500)
}

// TestPauseResumeCancel: each acts within a second, at daemons that hold the jobs in queues and in lanes.
func TestPauseResumeCancel(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 4})
	const others = 3000
	s.campaign("c", 400)
	s.campaign("other", 300)
	s.startTwo()
	s.publish(mix(map[string]int{"c": 6000, "other": others}))
	s.await(20*time.Second, "jobs of c", func() bool { return s.receiver.count("c") > 800 })
	status := func(to string) int64 {
		s.sql(`UPDATE pacer.campaigns SET status = $1 WHERE id = 'c'`, to)
		return s.receiver.now()
	}
	stopped := func(what string, at int64) {
		time.Sleep(2500 * time.Millisecond)
		if more := s.between("c", at+1_000_000, s.receiver.now()); more > 0 {
			t.Errorf("%d sent more than a second after the %s", more, what)
		}
	}
	stopped("pause", status("paused"))
	resumed := status("active")
	s.await(10*time.Second, "jobs after the resume", func() bool { return s.between("c", resumed, s.receiver.now()) >= 600 })
	first := s.during("c", resumed, forever)[0]
	if took := time.Duration(first.at-resumed) * time.Microsecond; took > time.Second {
		t.Errorf("the resume took %s", took)
	}
	stopped("cancel", status("cancelled"))
	s.withinBound("c", 400)
	s.await(40*time.Second, "the other campaign's jobs", func() bool {
		n, _ := s.receiver.accepted("other")
		return n == others
	})
	s.withinBound("other", 300)
	if _, duplicates := s.receiver.accepted(""); duplicates > 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}
