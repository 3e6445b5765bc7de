//go:build e2e

package test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// measureOrder: the order of one campaign's jobs, by where they waited.
func measureOrder(t *testing.T, table *laneTable) {
	for _, c := range []struct {
		what       string
		partitions int
		daemons    int
		rate, jobs int
		raised     int // to this rate after three seconds, if not 0
		fails      int // of a thousand jobs, the first attempt
	}{
		{what: "1500/s, all in memory", partitions: 1, daemons: 1, rate: 1500, jobs: 4000},
		{what: "300/s, most in a lane", partitions: 1, daemons: 1, rate: 300, jobs: 4000},
		{what: "100/s, raised to 1500/s", partitions: 1, daemons: 1, rate: 100, jobs: 4000, raised: 1500},
		{what: "1500/s, three lanes", partitions: 1, daemons: 1, rate: 1500, jobs: 20_000},
		{what: "1500/s, three lanes, three daemons", partitions: 1, daemons: 3, rate: 1500, jobs: 20_000},
		{what: "1500/s, six ingress partitions", partitions: 6, daemons: 1, rate: 1500, jobs: 4000},
		{what: "1500/s, one in a hundred fails once", partitions: 1, daemons: 1, rate: 1500, jobs: 4000, fails: 10},
	} {
		s := newStack(t, stackOptions{partitions: c.partitions, settings: "retry: {initial: 1s, jitter: 0}"})
		if c.fails > 0 {
			s.receiver.fails(500, func(a arrival) bool { return a.attempt <= 1 && numberOf(t, a.id)%1000 < c.fails })
		}
		s.campaign("c", float64(c.rate))
		daemons := s.fleet([]string{"one", "two", "three"}[:c.daemons]...)
		s.publish(ofCampaign("c", 0, c.jobs))
		if c.raised > 0 {
			s.await(20*time.Second, "the first job", func() bool { return s.receiver.count("c") > 0 })
			time.Sleep(3 * time.Second)
			s.changeRate("c", c.raised)
		}
		s.await(2*time.Minute, "every job", func() bool {
			distinct, _ := s.receiver.accepted("c")
			return distinct >= c.jobs
		})
		var order []int
		for _, a := range s.receiver.arrivals("c") {
			if a.status == 200 {
				order = append(order, numberOf(t, a.id))
			}
		}
		late, most := overtaken(order)
		table.add(t, c.what, fmt.Sprintf("%d of %d after a later one, at most %d places", late, c.jobs, most), "(printed)", true)
		for _, d := range daemons {
			d.kill()
		}
	}
}

// numberOf is the number in a job's id.
func numberOf(t *testing.T, id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil {
		t.Error(err)
	}
	return n
}

// overtaken is how many of the numbers come after a larger one, and how many larger ones come before one of them at most.
func overtaken(order []int) (late, most int) {
	var before []int // sorted
	for _, n := range order {
		i, _ := slices.BinarySearch(before, n)
		if larger := len(before) - i; larger > 0 {
			late++
			most = max(most, larger)
		}
		before = slices.Insert(before, i, n)
	}
	return late, most
}

// measureBurst: how long after a burst was published its jobs arrive, if the campaign has idled before and still has lanes.
func measureBurst(t *testing.T, table *laneTable) {
	const bursts, jobs, rate = 25, 100, 1000
	s := newStack(t, stackOptions{partitions: 3})
	s.campaign("c", rate)
	s.started("one")
	s.publish(ofCampaign("c", 0, 7*rate)) // more than fit in memory
	s.await(time.Minute, "the backlog", func() bool { return s.receiver.count("c") == 7*rate })
	var firsts, lasts []float64 // milliseconds
	for i := range bursts {
		time.Sleep(time.Second + time.Duration(rand.Int64N(int64(4*time.Second))))
		from := 7*rate + i*jobs
		began := s.receiver.now()
		s.publish(ofCampaign("c", from, jobs))
		s.await(10*time.Second, "the burst", func() bool { return s.receiver.count("c") == from+jobs })
		list := s.receiver.arrivals("c")[from:]
		firsts = append(firsts, float64(list[0].at-began)/1000)
		lasts = append(lasts, float64(list[len(list)-1].at-began)/1000)
	}
	slices.Sort(firsts)
	slices.Sort(lasts)
	for _, of := range []struct {
		what string
		ms   []float64
		most float64
	}{{"the first", firsts, 150}, {"the last", lasts, 300}} {
		table.add(t, fmt.Sprintf("%d bursts of %d jobs at %d/s after idle time: %s after", bursts, jobs, rate, of.what),
			fmt.Sprintf("median %.0f ms, most %.0f ms", of.ms[bursts/2], of.ms[bursts-1]), fmt.Sprintf("%.0f ms", of.most), of.ms[bursts-1] <= of.most)
	}
	t.Logf("first %.0f\nlast %.0f", firsts, lasts)
}
