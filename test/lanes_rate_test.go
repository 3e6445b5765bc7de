//go:build e2e

package test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// measureRaise: 20,000 jobs of a campaign at 50/s, raised to 1,000/s after a minute.
func measureRaise(t *testing.T, table *laneTable) {
	measureChange(t, table, 20_000, 50, 1000, time.Minute)
}

// measureCut: 20,000 jobs of a campaign at 1,000/s, cut to 100/s after 15 seconds.
func measureCut(t *testing.T, table *laneTable) {
	measureChange(t, table, 20_000, 1000, 100, 15*time.Second)
}

// measureChange: how often jobs are re-enqueued, and when all have been sent, when a rate is changed in the middle.
func measureChange(t *testing.T, table *laneTable, jobs, before, after int, change time.Duration) {
	s := newStack(t, stackOptions{partitions: 6})
	s.campaign("c", float64(before))
	d := s.started("one")
	s.publish(mix(map[string]int{"c": jobs}))
	s.await(20*time.Second, "the first job", func() bool { return s.receiver.count("c") > 0 })
	first := s.receiver.arrivals("c")[0].at
	time.Sleep(change - time.Duration(s.receiver.now()-first)*time.Microsecond)
	changed := s.changeRate("c", after)
	s.await(2*time.Minute, "every job", func() bool { return s.receiver.count("c") >= jobs })
	list := s.receiver.arrivals("c")
	took := float64(list[len(list)-1].at-first) / 1e6
	until := float64(changed-first) / 1e6
	ideal := until + (float64(jobs)-until*float64(before))/float64(after)
	table.add(t, fmt.Sprintf("%d jobs at %d/s, %d/s after %.0f s: time", jobs, before, after, change.Seconds()),
		fmt.Sprintf("%.1f s, ideal %.1f s", took, ideal), "within 5 % of the ideal", math.Abs(took/ideal-1) <= 0.05)
	s.oneHop(table, d, jobs)
	s.allOnce("c", jobs)
	s.rateIsNeverAbove("c", float64(max(before, after)))
}

// measureUneven: 200 campaigns whose rates go from 1 to 200/s, with equally many jobs, on 64 lanes.
func measureUneven(t *testing.T, table *laneTable) {
	ids := numbered(200)
	rate := func(i int) float64 { return math.Round(math.Pow(200, float64(i)/float64(len(ids)-1))) }
	s, sent := newLaneStack(t, 64)
	d := s.waiting(ids, 8500, rate)
	s.steady(table, d, sent, ids, rate, 30*time.Second, 0.9)
	s.oneHop(table, d, len(ids)*8500)
	s.inMemory(table, d, 512)
}

// measureMany: 2,000 campaigns at 2/s each on 256 lanes.
func measureMany(t *testing.T, table *laneTable) {
	ids := numbered(2000)
	rate := func(int) float64 { return 2 }
	const each = 150
	s, sent := newLaneStack(t, 256)
	d := s.waiting(ids, each, rate)
	s.steady(table, d, sent, ids, rate, time.Minute, 0.8)
	s.inMemory(table, d, 512)
	s.await(time.Minute, "every job", func() bool { return sent.read().total >= each*len(ids) })
	time.Sleep(time.Second) // for duplicates that come late
	lost, again := sent.read().fates(ids, each)
	table.none(t, "lost, sent twice", lost, again)
	s.oneHop(table, d, len(ids)*each)
}

// waiting starts a daemon and fills its lanes with that many jobs of each campaign, published in turns while all campaigns are paused. It
// returns when all have been written there and passed by.
func (s *stack) waiting(ids []string, each int, rate func(i int) float64) *daemon {
	s.t.Helper()
	s.campaigns("noted", "paused", ids, rate)
	d := s.started("one")
	began := time.Now()
	s.publishTurns(ids, 0, each)
	published := time.Since(began)
	s.awaitLanes(10*time.Minute, int64(len(ids)*each))
	s.t.Logf("%d jobs published in %.1f s, in lanes after %.1f s (%.0f/s)", len(ids)*each, published.Seconds(),
		time.Since(began).Seconds(), float64(len(ids)*each)/time.Since(began).Seconds())
	s.await(time.Minute, "the lanes to be read", func() bool { return d.laneReads().read >= float64(len(ids)*each) })
	return d
}

// resume lets all campaigns send, and returns the time after so long.
func (s *stack) resume(settling time.Duration) time.Time {
	s.t.Helper()
	s.sql(`UPDATE pacer.campaigns SET status = 'active'`)
	return time.Now().Add(settling)
}

// steady lets all campaigns send, and notes what part of its rate each was sent at, which must never be more than all of it.
func (s *stack) steady(table *laneTable, d *daemon, sent *noted, ids []string, rate func(i int) float64, window time.Duration, least float64) {
	s.t.Helper()
	from := s.resume(5 * time.Second)
	to := from.Add(window)
	time.Sleep(time.Until(from))
	before := d.laneReads()
	time.Sleep(time.Until(to))
	s.readFactor(table, d, before)
	time.Sleep(time.Second) // for what is still being written down
	sent.read()
	parts, worst, below := make([]float64, len(ids)), 0, 0
	for i, id := range ids {
		n, due := float64(sent.in(id, from, to)), rate(i)*to.Sub(from).Seconds()
		parts[i] = min(1, (n+1)/due) // the window may cut one off
		if parts[i] < parts[worst] {
			worst = i
		}
		if parts[i] < least {
			below++
			if below <= 5 {
				s.t.Logf("%s at %.0f/s: %.1f %% of its rate", id, rate(i), 100*parts[i])
			}
		}
		if most := due*(1+lateTolerance.Seconds()) + max(0.1, rate(i)*lateTolerance.Seconds()) + 1; n > most {
			s.t.Errorf("%s: %.0f jobs in %s at %.0f/s", id, n, to.Sub(from), rate(i))
		}
	}
	sorted := slices.Sorted(slices.Values(parts))
	table.add(s.t, fmt.Sprintf("%d campaigns in %.0f s: part of its rate", len(ids), to.Sub(from).Seconds()),
		fmt.Sprintf("least %.1f %% (%s), median %.1f %%, %d below", 100*parts[worst], ids[worst], 100*sorted[len(sorted)/2], below),
		fmt.Sprintf("no campaign below %.0f %%", 100*least), below == 0)
}
