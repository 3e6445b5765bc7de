//go:build e2e

package test

import (
	"fmt"
	"testing"
	"time"
)

// measureFleet: three daemons send the backlog of one campaign, 25 seconds of it, published at once. One campaign is at
// 6,000/s to a destination that answers after 100 ms, with 256 calls in flight in each daemon; the other at 500/s to one
// that answers after 4 s, with 64, which allows 48/s.
func measureFleet(t *testing.T, table *laneTable) {
	for _, c := range []struct {
		rate, calls int
		answer      time.Duration
		possible    float64 // a second
		from, to    time.Duration
		wanted      float64
	}{
		{6000, 256, 100 * time.Millisecond, 6000, 2 * time.Second, 15 * time.Second, 0.98},
		{1500, 256, 400 * time.Millisecond, 1500, 3 * time.Second, 15 * time.Second, 0.98},
		{500, 64, 4 * time.Second, 48, 10 * time.Second, 50 * time.Second, 0.94},
	} {
		s := newStack(t, stackOptions{partitions: 12, lanes: 256})
		s.receiver.delay = c.answer
		s.sql(`INSERT INTO pacer.campaigns (id, send_rate, max_in_flight) VALUES ('c', $1, $2)`, c.rate, c.calls)
		daemons := []*daemon{s.start("one"), s.start("two"), s.start("three")}
		for _, d := range daemons {
			d.awaitReady(20 * time.Second)
		}
		s.publish(ofCampaign("c", 0, 25*c.rate))
		s.await(20*time.Second, "the first job", func() bool { return s.receiver.count("c") > 0 })
		first := s.receiver.arrivals("c")[0].at
		time.Sleep(c.to + time.Second - time.Duration(s.receiver.now()-first)*time.Microsecond)
		n := s.between("c", first+c.from.Microseconds(), first+c.to.Microseconds())
		perSecond := float64(n) / (c.to - c.from).Seconds()
		var each []int
		for _, d := range daemons {
			each = append(each, int(d.samplesOf(`pacer_jobs_settled_total{campaign="c",outcome="delivered"}`)))
		}
		table.add(t, fmt.Sprintf("%d/s, 3 daemons x %d calls of %v: jobs a second", c.rate, c.calls, c.answer),
			fmt.Sprintf("%.0f of %.0f, by daemon %v", perSecond, c.possible, each),
			fmt.Sprintf("%.0f %%", 100*c.wanted), perSecond >= c.wanted*c.possible)
		_, again := s.receiver.accepted("c")
		table.add(t, "sent twice, most hops", fmt.Sprintf("%d, %d", again, s.maxHops()), "0, 1", again == 0 && s.maxHops() <= 1)
		for _, d := range daemons {
			d.kill()
		}
	}
}
