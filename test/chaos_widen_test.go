package test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// widenCases are about a backlog that lies in fewer lanes than its campaign needs now.
var widenCases = []chaosCase{
	{"backlog-in-too-few-lanes", false, backlogInTooFewLanes},
	{"crash-while-widening", false, crashWhileWidening},
}

const (
	widenCalls = 16          // of the campaign in each daemon
	widenTook  = time.Second // each of them
	widenRate  = 300         // a second, which is more than they allow
)

// inOneLane lets the backlog of a slow campaign with a fast destination lie in one lane, sent by one of the daemons. Then the
// destination becomes slow, and the rate is raised.
func (c *chaos) inOneLane(jobs int) {
	c.t.Helper()
	c.campaign("wide", 20)
	c.sql(`UPDATE pacer.campaigns SET max_in_flight = $1`, widenCalls)
	c.publish(ofCampaign("wide", 0, jobs))
	c.await(30*time.Second, "an empty ingress", func() bool { return c.openIn(c.ingress) == 0 })
	c.await(10*time.Second, "jobs from the lane", func() bool { return c.receiver.count("wide") > 100 })
	if lanes := c.stripes("wide"); len(lanes) != 1 {
		c.t.Fatalf("the backlog lies in lanes %v", lanes)
	}
	c.answersAfter(widenTook)
	c.setRate("wide", widenRate, time.Second)
}

// answersAfter has the receiver answer the campaign so late from now on.
func (c *chaos) answersAfter(d time.Duration) {
	c.receiver.mu.Lock()
	defer c.receiver.mu.Unlock()
	c.receiver.delays = map[string]time.Duration{"wide": d}
}

// moves are the records in lanes that say that their job was moved there from another one, by job.
func (c *chaos) moves() map[string][]delivery.Record {
	c.t.Helper()
	found := map[string][]delivery.Record{}
	c.each("lanes", func(_ string, r delivery.Record) {
		hops, _ := strconv.Atoi(r.Header("pacer-hops"))
		moved := r.Header("pacer-widened") == "1"
		if hops > 2 || hops == 2 && !moved || moved && r.Header("pacer-reason") != string(delivery.ReasonWidened) {
			c.t.Errorf("%s in lane %d has made %d hops, moved: %t, for %s", r.Header("pacer-job-id"), r.Partition, hops, moved, r.Header("pacer-reason"))
		}
		if moved {
			found[r.Header("pacer-job-id")] = append(found[r.Header("pacer-job-id")], r)
		}
	})
	return found
}

// moved is how many jobs the daemons say that they have moved to other lanes.
func moved(daemons ...*daemon) (n int) {
	for _, d := range daemons {
		n += int(d.samplesOf("pacer_widened_total"))
	}
	return n
}

// backlogInTooFewLanes: all daemons send a backlog that was written to one lane, once its daemon has no free call. Each job is moved
// once at most, none is sent twice, and when calls are free again, nothing is moved.
func backlogInTooFewLanes(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6, lanes: 64})
	daemons := []*daemon{c.join("one"), c.join("two"), c.join("three")}
	const jobs = 3000
	c.inOneLane(jobs)
	time.Sleep(2 * widenTook)
	from := c.receiver.now()
	first := from
	const span = 5 * time.Second
	sentIn := func() float64 {
		time.Sleep(time.Duration(from+span.Microseconds()-c.receiver.now()) * time.Microsecond)
		n := c.between("wide", from, from+span.Microseconds())
		from += span.Microseconds()
		return float64(n) / span.Seconds()
	}
	var rates []float64
	possible := float64(len(daemons)*widenCalls) / widenTook.Seconds()
	for len(rates) < 8 && (len(rates) == 0 || rates[len(rates)-1] < 0.9*possible) {
		rates = append(rates, sentIn())
	}
	var each []int
	for _, d := range daemons {
		each = append(each, d.settledBy("wide"))
	}
	t.Logf("jobs a second in each %s: %v, of %v possible; sent by the daemons: %v, moved %d; lanes %v", span, rates, possible, each, moved(daemons...), c.stripes("wide"))
	if last := rates[len(rates)-1]; last < 0.9*possible {
		t.Errorf("%.1f/s are sent after %s, of %.1f/s possible", last, time.Duration(from-first)*time.Microsecond, possible)
	}
	moves := c.moves()
	for id, records := range moves {
		if len(records) > 1 {
			t.Errorf("%s was moved %d times", id, len(records))
		}
	}
	if len(moves) == 0 {
		t.Error("nothing was moved to another lane")
	}
	c.answersAfter(0)
	time.Sleep(2 * time.Second) // calls are free: nothing more is moved
	before := moved(daemons...)
	time.Sleep(time.Second)
	if n := moved(daemons...) - before; n > 0 {
		t.Errorf("%d jobs were moved although calls are free", n)
	}
	c.healed()
	c.delivered(60 * time.Second)
	if written := c.written(requeue.LaneTopic(c.prefix)); written > int64(jobs+before) {
		t.Errorf("%d records were written to lanes for %d jobs, of which %d were moved", written, jobs, before)
	}
	c.quiet(daemons...)
}

// crashWhileWidening kills the daemon that moves jobs to other lanes between a produce and its commit: the broker's answers are
// late. The next owner of the lane moves them to the same lanes once more, whose readers must tell.
func crashWhileWidening(t *testing.T, c *chaos) {
	broker, network := proxiedKafka(t)
	broker.answersThrough(t, network)
	c.world(t, stackOptions{partitions: 6, lanes: 64, brokers: broker.brokers})
	through := "PACER_KAFKA_BROKERS=" + network.addr
	daemons := []*daemon{c.join("one", through), c.join("two", through), c.join("three", through)}
	c.inOneLane(3000)
	first := map[string][]delivery.Record{}
	c.shared(groupRecovery, func() { // the answers to all daemons are late, and then the group waits for the dead one
		network.delay(300*time.Millisecond, 0)
		c.await(40*time.Second, "jobs that are moved", func() bool { return len(c.moves()) > 0 })
		c.crash(slices.MaxFunc(daemons, func(a, b *daemon) int { return a.settledBy("wide") - b.settledBy("wide") }))
		c.mayRepeat(500, "by configuration: a batch of 500 jobs moved from the lane")
		first = c.moves()
		network.heal()
		c.healed()
		c.await(60*time.Second, "more jobs that are moved", func() bool { return len(c.moves()) > len(first)+500 })
	})
	twice := 0
	for id, records := range c.moves() {
		if len(records) > 2 {
			t.Errorf("%s was moved %d times", id, len(records))
		}
		if len(records) > 1 {
			twice++
			if records[0].Partition != records[1].Partition {
				t.Errorf("%s was moved to lanes %d and %d", id, records[0].Partition, records[1].Partition)
			}
		}
	}
	t.Logf("%d jobs had been moved, %d of them once more after the crash", len(first), twice)
	c.answersAfter(0)
	c.delivered(60 * time.Second)
}
