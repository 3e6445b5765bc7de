package test

import (
	"net/url"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/requeue"
)

// catalogCases are about PostgreSQL and the way to it.
var catalogCases = []chaosCase{
	{"postgres-down", false, postgresDown},
	{"postgres-down-at-a-first-overflow", false, postgresDownAtOverflow},
	{"daemons-that-disagree", true, daemonsDisagree},
}

// catalogNetwork is a proxy in front of the stack's database, and the variable that leads a daemon there.
func (c *chaos) catalogNetwork() (*proxy, string) {
	c.t.Helper()
	dsn, err := url.Parse(c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	network := newProxy(c.t, dsn.Host)
	dsn.Host = network.addr
	return network, "PACER_POSTGRES_DSN=" + dsn.String()
}

// postgresDown takes the catalog away from daemons that know their campaigns: they go on, and jobs overflow into the
// lanes that their campaigns have. What changed meanwhile acts afterwards.
func postgresDown(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	network, dsn := c.catalogNetwork()
	c.brokerLoad(dsn)
	c.arrived(0.2)
	network.down()
	since := c.receiver.now()
	c.publish(further("waits", "later", c.jobs(400)))
	time.Sleep(5 * time.Second)
	c.setRate("waits", c.rate(200), 0)
	if c.between("", since, c.receiver.now()) < 100 {
		t.Error("sending stopped without PostgreSQL")
	}
	network.heal()
	c.healed()
	c.delivered(60 * time.Second)
}

// postgresDownAtOverflow takes the catalog away before any campaign has a lane.
func postgresDownAtOverflow(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	network, dsn := c.catalogNetwork()
	c.campaign("waits", 5)
	c.join("one", dsn)
	c.join("two", dsn)
	c.publish(further("waits", "known", 5)) // so that the campaign has been seen
	c.await(20*time.Second, "the first jobs", func() bool { return c.receiver.count("") == 5 })
	network.down()
	c.publish(further("waits", "later", c.jobs(600)))
	c.await(20*time.Second, "jobs in lanes", func() bool { return c.written(requeue.LaneTopic(c.prefix)) >= int64(c.jobs(500)) })
	network.heal()
	c.release()
	c.healed()
	c.delivered(60 * time.Second)
}

// daemonsDisagree lowers a rate and a quota where one of two daemons cannot see it. Once the other one has asked the store
// for either, the store knows the newer revision and holds both to it.
func daemonsDisagree(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 5}) // odd: both daemons have jobs of both campaigns, which alternate
	network, dsn := c.catalogNetwork()
	high, low := c.rate(300), c.rate(30)
	c.campaign("rate", high)
	c.campaign("quota", high)
	c.stack.quota("q", "closed", "100000/1s")
	c.under("q", "quota")
	n := int(4.5 * high) // they do not overflow: a lane would give all of them to one daemon
	c.publish(mix(map[string]int{"rate": n, "quota": n}))
	c.join("sees")
	c.join("does-not-see", dsn)
	c.arrived(0.2)
	network.down()
	c.setRate("rate", low, 500*time.Millisecond)
	c.stack.quota("q", "closed", "20/1s")
	// The old limit leaves a second's worth in the window, and slots already granted.
	lowered := c.receiver.now() + 500_000
	time.Sleep(4 * time.Second)
	list := c.during("quota", lowered, c.receiver.now())
	if over := tooMany(list, 20, time.Second, c.receiver.blur()); over > 0 {
		c.row.over += over
		t.Errorf("%d jobs in a second under a quota lowered to 20", rolling(list, time.Second))
	}
	if len(c.during("rate", lowered, c.receiver.now())) == 0 {
		t.Error("nothing was sent at the lower rate")
	}
	network.heal()
	c.setRate("rate", high, 0)
	c.stack.quota("q", "closed", "100000/1s")
	c.healed()
	c.delivered(60 * time.Second)
}

// during are the arrivals of a campaign from one time of the receiver to another.
func (c *chaos) during(campaign string, from, to int64) (list []arrival) {
	for _, a := range c.receiver.arrivals(campaign) {
		if a.at >= from && a.at < to {
			list = append(list, a)
		}
	}
	return list
}

// further are n further jobs of a campaign, whose ids begin with a word of their own.
func further(campaign, word string, n int) []job {
	jobs := mix(map[string]int{campaign: n})
	for i := range jobs {
		jobs[i].id = word + "-" + jobs[i].id
	}
	return jobs
}
