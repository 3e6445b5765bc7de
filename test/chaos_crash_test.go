package test

import (
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// crashCases are about daemons that die, come and go.
var crashCases = []chaosCase{
	{"crash-after-the-sink-accepted", false, crashAfterAccepted, telling{}},
	{"crash-between-lane-produce-and-commit", true, crashBeforeCommit, telling{}},
	{"crash-while-relaying-to-several-lanes", false, crashAmongStripes, telling{}},
	{"rebalance-with-grants-held", true, rebalanceWithGrants, telling{}},
	{"offsets-of-the-group-gone", false, offsetsGone, telling{line: "the group has no offset for a partition"}},
	{"daemon-suspended-for-a-minute", false, suspendedForAMinute, telling{line: "the group has gone on without this daemon"}},
}

// crashAfterAccepted kills a daemon while the receiver has many of its requests, and has not answered them yet.
func crashAfterAccepted(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.receiver.answersAfter("", 300*time.Millisecond)
	c.load(6, map[string]float64{"fast": 200, "slow": 20})
	one := c.join("one")
	c.figures("fast", "slow")
	c.arrived(0.4)
	c.crash(one)
	c.again(one)
	c.recovers(60 * time.Second)
	if _, duplicates := c.receiver.accepted(""); duplicates == 0 {
		t.Error("nothing was sent twice: the daemon had nothing in flight when it was killed")
	}
}

// crashBeforeCommit kills a daemon that has written jobs to a lane and not yet committed that: the broker's answers are
// late. The next daemon writes them to the lane once more, and the lane's reader must tell.
func crashBeforeCommit(t *testing.T, c *chaos) {
	const partitions = 2
	broker, network := proxiedKafka(t)
	c.world(t, stackOptions{partitions: partitions, brokers: broker.brokers})
	one := c.crashLate(network, func() { c.load(1000, map[string]float64{"waits": 2}) })
	c.bury()
	c.mayRepeat(500*partitions, "c")
	c.mayRepeat(int(1.5*(c.bystander.rate+2)), "c")
	c.amongBoth()
	c.setRate("waits", float64(c.jobs(1000)), 0)
	c.again(one)
	c.recovers(60 * time.Second)
}

// crashLate makes the broker's answers late, publishes jobs, and kills the daemon when some are in lanes.
func (c *chaos) crashLate(network *proxy, publish func()) *daemon {
	c.t.Helper()
	one := c.join("one", "PACER_KAFKA_BROKERS="+network.addr)
	c.await(20*time.Second, "the bystander", func() bool { return c.bystander.since(time.Minute) > 0 })
	c.shared(0, func() {
		network.delay(500*time.Millisecond, 0)
		publish()
		c.inLanes(1)
	})
	c.crash(one)
	return one
}

// amongBoth fails the case unless jobs are in a lane and, as far as the group has committed, in ingress too.
func (c *chaos) amongBoth() {
	c.t.Helper()
	lanes, places := requeue.LaneTopic(c.prefix), map[string]map[string]bool{}
	c.eachOpen(func(topic string, r delivery.Record) {
		id := r.Header("pacer-job-id")
		if places[id] == nil {
			places[id] = map[string]bool{}
		}
		places[id][topic] = true
	})
	twice := 0
	for _, topics := range places {
		if topics[lanes] && topics[c.ingress] {
			twice++
		}
	}
	c.t.Logf("%d jobs are in a lane and in ingress", twice)
	if twice == 0 {
		c.t.Error("the daemon was not killed between a produce and its commit")
	}
}

// crashAmongStripes is the same with a campaign that has several lanes: a job that is written once more goes to the lane that has it already, so
// that the reader can tell.
func crashAmongStripes(t *testing.T, c *chaos) {
	const partitions, jobs = 2, 8000
	broker, network := proxiedKafka(t)
	c.world(t, stackOptions{partitions: partitions, brokers: broker.brokers, lanes: manyLanes - 1})
	c.campaign("wide", 2000)
	c.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'wide'`)
	one := c.crashLate(network, func() { c.publish(ofCampaign("wide", 0, jobs)) })
	c.mayRepeat(int(1.5*c.bystander.rate), "c")
	c.bury()
	c.amongBoth()
	c.again(one)
	one.awaitReady(20 * time.Second)
	lanes := map[string][]int{}
	c.await(30*time.Second, "all jobs in lanes", func() bool {
		clear(lanes)
		c.each("lanes", func(_ string, r delivery.Record) {
			if r.Header("pacer-campaign") == "wide" {
				lanes[r.Header("pacer-job-id")] = append(lanes[r.Header("pacer-job-id")], r.Partition)
			}
		})
		return len(lanes) == jobs
	})
	twice, apart := 0, 0
	for _, of := range lanes {
		if len(of) > 1 {
			twice++
			if len(slices.Compact(of)) > 1 {
				apart++
			}
		}
	}
	t.Logf("%d jobs were written twice, %d of them to different lanes; the campaign has %d", twice, apart, len(c.stack.inLanes("wide")))
	if apart > 0 || len(c.stack.inLanes("wide")) < 2 {
		t.Error("a second record is in another lane, or the campaign has one lane")
	}
	c.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'wide'`)
	c.recovers(60 * time.Second)
}

// rebalanceWithGrants has daemons join and leave while others hold slots. Nothing may be sent twice: every one of them
// drains.
func rebalanceWithGrants(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.load(8, map[string]float64{"fast": 300, "slow": 20})
	c.comeAndGo()
	c.recovers(60 * time.Second)
}

// comeAndGo has daemons join and leave.
func (c *chaos) comeAndGo() {
	c.t.Helper()
	one := c.join("one")
	c.arrived(0.2)
	c.join("two")
	c.arrived(0.4)
	c.leave(one)
	c.arrived(0.6)
	c.join("three")
}

// offsetsGone kills the only daemon, with a backlog in lanes, and the group's offsets and the records of ingress expire
// before there is another one. The positions that the catalog keeps are what is left.
func offsetsGone(t *testing.T, c *chaos) {
	const rate = 100
	c.world(t, stackOptions{partitions: 2})
	c.campaign("waits", rate)
	c.publish(mix(map[string]int{"waits": c.jobs(3000)}))
	one := c.join("one")
	c.await(30*time.Second, "an empty ingress", func() bool { return c.openIn(c.ingress) == 0 })
	c.await(30*time.Second, "jobs from the lane", func() bool { return c.receiver.count("") > 8*rate })
	c.crash(one)
	most := 5.5 * (rate + c.bystander.rate)
	c.mayRepeat(int(most), "c")
	c.forget()
	c.healed()
	c.join("two")
	c.setRate("waits", float64(c.jobs(1000)), 0)
	c.delivered(60 * time.Second)
}

// suspendedForAMinute stops one of three daemons for longer than the group waits for its members. The others take over; the
// one that wakes up sends nothing of what is no longer its own.
func suspendedForAMinute(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.load(50, map[string]float64{"fast": 100, "slow": 10})
	c.join("one")
	two := c.join("two")
	c.join("three")
	c.arrived(0.1)
	c.suspend(two, time.Minute)
	c.recovers(2 * time.Minute)
}

// openIn counts the records of a topic that the group's commits leave open.
func (c *chaos) openIn(topic string) (n int) {
	c.t.Helper()
	c.eachOpen(func(at string, _ delivery.Record) {
		if at == topic {
			n++
		}
	})
	return n
}

// forget removes the group with its offsets, and the records of ingress.
func (c *chaos) forget() {
	c.t.Helper()
	ctx := c.soon()
	c.await(30*time.Second, "a group without members, to be deleted", func() bool {
		answer, err := c.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{c.ingress}})
		return err == nil && answer.Errors[c.ingress] == nil
	})
	c.anew(c.ingress)
}
