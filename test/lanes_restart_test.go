//go:build e2e

package test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// measureRestart: a million jobs of 20 campaigns wait in lanes; the daemon is stopped and started, killed and started.
func measureRestart(t *testing.T, table *laneTable) {
	ids := numbered(20)
	each := laneJobs(t, 1_000_000) / len(ids)
	const perSecond = 50
	s, sent := newLaneStack(t, 16)
	d := s.waiting(ids, each, func(int) float64 { return perSecond })
	s.sql(`UPDATE pacer.campaigns SET sink = 'receiver'`)
	s.resume(0)
	time.Sleep(10 * time.Second)
	s.inMemory(table, d, 256)

	d.stop()
	_, before := s.receiver.accepted("")
	down := s.launchAgain(d)
	table.add(t, "sending again after a graceful stop", fmt.Sprintf("%.1f s after the start", down.Seconds()), "within 5 s",
		down <= 5*time.Second)
	time.Sleep(10 * time.Second)
	_, again := s.receiver.accepted("")
	s.readAgain(table, d, len(ids)*perSecond)
	s.inMemory(table, d, 256)
	table.must(t, "sent twice by a graceful stop", fmt.Sprint(again-before), "0", again == before)

	inFlight := s.buffered()
	d.kill()
	down = s.launchAgain(d)
	table.add(t, "sending again after a kill", fmt.Sprintf("%.1f s after the start", down.Seconds()), "within 12 s",
		down <= 12*time.Second)
	time.Sleep(10 * time.Second)
	_, killed := s.receiver.accepted("")
	s.readAgain(table, d, len(ids)*perSecond)
	table.must(t, "sent twice by the kill", fmt.Sprint(killed-again), fmt.Sprintf("at most the %d in flight", inFlight), killed-again <= inFlight)

	s.sql(`UPDATE pacer.campaigns SET sink = 'noted', send_rate = 1000`)
	began, rest := time.Now(), len(ids)*each-s.receiver.count("")+killed
	s.await(5*time.Minute, "the rest of the jobs", func() bool {
		return sent.read().total+s.receiver.count("")-killed >= len(ids)*each
	})
	perSec := float64(rest) / time.Since(began).Seconds()
	table.add(t, "then all at 1,000/s each", fmt.Sprintf("%d jobs at %.0f/s", rest, perSec), "20,000/s", perSec > 19_000)
	s.inMemory(table, d, 256)
	sent.noteArrivals(s.receiver.arrivals(""))
	lost, _ := sent.fates(ids, each)
	table.must(t, "lost", fmt.Sprint(lost), "0", lost == 0)
}

// launchAgain starts the daemon again and returns how long it takes to the first job.
func (s *stack) launchAgain(d *daemon) time.Duration {
	s.t.Helper()
	time.Sleep(100 * time.Millisecond) // for what is still on its way
	n, began := s.receiver.count(""), time.Now()
	d.launch()
	s.await(time.Minute, "the first job", func() bool { return s.receiver.count("") > n })
	return time.Since(began)
}

// readAgain notes what a daemon has read of the lanes in the ten seconds since its start: the jobs it sent, those it holds (two seconds'
// worth of each campaign), and the rest.
func (s *stack) readAgain(table *laneTable, d *daemon, perSecond int) {
	s.t.Helper()
	read, held := d.metric(`pacer_records_read_total{place="lane"}`), d.metric(`pacer_open_offsets{place="lane"}`)
	table.add(s.t, "read from lanes in 10 s after the start",
		fmt.Sprintf("%.0f records, %.0f of them held", read, held),
		fmt.Sprintf("%d sent", 10*perSecond), true)
}

// measureCancel: a campaign with a million jobs on a lane that others share is cancelled.
func measureCancel(t *testing.T, table *laneTable) {
	others := []string{"a", "b", "c"}
	const perSecond, each = 200, 10_000
	jobs := laneJobs(t, 1_000_000)
	s := newStack(t, stackOptions{partitions: 6, lanes: 1})
	s.campaigns("receiver", "paused", append([]string{"gone"}, others...), func(int) float64 { return perSecond })
	d := s.started("one")
	s.publish(mix(map[string]int{"gone": jobs, "a": each, "b": each, "c": each}))
	s.awaitLanes(5*time.Minute, int64(jobs+len(others)*each))
	s.await(time.Minute, "the lane to be read", func() bool { return d.laneReads().read >= float64(jobs) })
	before := d.laneReads()
	s.resume(0)
	time.Sleep(15 * time.Second)

	s.sql(`UPDATE pacer.campaigns SET status = 'cancelled' WHERE id = 'gone'`)
	cancelled := s.receiver.now()
	settled := int64(0)
	s.await(2*time.Minute, "the others' jobs and the cancelled ones", func() bool {
		time.Sleep(100 * time.Millisecond)
		done := d.metric(`pacer_jobs_settled_total{campaign="gone",outcome="cancelled"`) +
			d.metric(`pacer_jobs_settled_total{campaign="gone",outcome="delivered"`)
		if settled == 0 && done >= float64(jobs) {
			settled = s.receiver.now()
		}
		return settled > 0 && s.receiver.count("")-s.receiver.count("gone") >= len(others)*each
	})
	last := s.receiver.arrivals("gone")
	late := s.between("gone", cancelled+1_000_000, s.receiver.now())
	table.must(t, fmt.Sprintf("of %d cancelled jobs sent later than 1 s after", jobs), fmt.Sprintf("%d, the last after %.0f ms", late,
		float64(last[len(last)-1].at-cancelled)/1e3), "0", late == 0)
	worst, whose, before10 := 2.0, "", 0.0
	for _, id := range others {
		was := float64(s.between(id, cancelled-10_000_000, cancelled)) / (10 * perSecond)
		is := float64(s.between(id, cancelled, cancelled+20_000_000)) / (20 * perSecond)
		t.Logf("%s: %.1f %% of its rate in the 10 s before, %.1f %% in the 20 s after", id, 100*was, 100*is)
		if is < worst {
			worst, whose, before10 = is, id, was
		}
		s.withinBound(id, perSecond)
	}
	table.add(t, "others on the lane in the 20 s after: part of their rate",
		fmt.Sprintf("least %.1f %% (%s, before %.1f %%)", 100*worst, whose, 100*before10), "99 % of that before", worst >= 0.99*before10)
	took := float64(settled-cancelled) / 1e6
	table.add(t, "cancelled jobs settled", fmt.Sprintf("%.1f s after, %.0f/s", took, float64(jobs)/took), "(printed)", true)
	s.await(time.Minute, "the lane to be committed to its end", func() bool { return s.uncommitted() == 0 })
	var lost, again int
	for _, id := range others {
		distinct, twice := s.receiver.accepted(id)
		lost, again = lost+each-distinct, again+twice
	}
	table.none(t, "others lost, sent twice", lost, again)
	s.readFactor(table, d, before)
	s.inMemory(table, d, 256)
}

// measureRolling: three daemons are stopped and started one after the other, 30 s apart, while campaigns send from lanes
// and one sends what is published meanwhile.
func measureRolling(t *testing.T, table *laneTable) {
	ids := numbered(8)
	const perSecond, each, live, apart = 100, 13_000, 150, 30 * time.Second
	s := newStack(t, stackOptions{partitions: 6, lanes: 64})
	s.campaigns("receiver", "active", ids, func(int) float64 { return perSecond })
	s.campaign("live", 2*live)
	daemons := s.fleet("one", "two", "three")
	s.publishTurns(ids, 0, each)
	s.await(30*time.Second, "every campaign's jobs", func() bool { return s.receiver.count("") > 5*perSecond*len(ids) })

	from, published := s.receiver.now(), 0
	next := time.Now()
	until := func(end time.Time) { // publishes what is due for the live campaign meanwhile
		for time.Now().Before(end) {
			const step = 100 * time.Millisecond
			next = next.Add(step)
			s.publishTurns([]string{"live"}, published, live/10)
			published += live / 10
			time.Sleep(time.Until(next))
		}
	}
	begun := time.Now()
	for i, d := range daemons {
		until(begun.Add(time.Duration(i)*apart + apart/2))
		d.stop()
		d.launch()
	}
	until(begun.Add(time.Duration(len(daemons)) * apart))
	to := s.receiver.now()
	s.await(2*time.Minute, "every job", func() bool { return s.receiver.count("") >= len(ids)*each+published })
	time.Sleep(2 * time.Second) // for duplicates that come late
	worst, whose := 2.0, ""
	for _, id := range ids {
		if part := rate(s.receiver.arrivals(id), from, to) / perSecond; part < worst {
			worst, whose = part, id
		}
		s.withinBound(id, perSecond)
	}
	total := 0.0
	for _, id := range ids {
		total += rate(s.receiver.arrivals(id), from, to) / perSecond / float64(len(ids))
	}
	table.add(t, "three restarts: part of the rate, over the whole of it", fmt.Sprintf("%.1f %%, least %.1f %% (%s)", 100*total,
		100*worst, whose), "95 %", total >= 0.95)
	table.add(t, "longest silence of a campaign", fmt.Sprintf("%.2f s", s.longestGap(ids, from, to).Seconds()), "(printed)", true)
	distinct, again := s.receiver.accepted("")
	lost := len(ids)*each + published - distinct
	if table.none(t, "lost, sent twice", lost, again); lost+again > 0 {
		t.Log(strings.Join(s.twice(), "\n"))
	}
}

// longestGap is the longest time without a job of a campaign.
func (s *stack) longestGap(ids []string, from, to int64) time.Duration {
	longest := int64(0)
	for _, id := range ids {
		last := from
		for _, a := range s.receiver.arrivals(id) {
			if a.at >= from && a.at < to {
				longest, last = max(longest, a.at-last), a.at
			}
		}
		longest = max(longest, to-last)
	}
	return time.Duration(longest) * time.Microsecond
}

// twice lists the first jobs that arrived more than once, and when.
func (s *stack) twice() (lines []string) {
	seen := map[string]arrival{}
	for _, a := range s.receiver.arrivals("") {
		if was, ok := seen[a.id]; ok && len(lines) < 20 {
			lines = append(lines, fmt.Sprintf("%s (attempt %d) at %.3f s and (attempt %d) at %.3f s", a.id, was.attempt,
				float64(was.at)/1e6, a.attempt, float64(a.at)/1e6))
		}
		seen[a.id] = a
	}
	return lines
}
