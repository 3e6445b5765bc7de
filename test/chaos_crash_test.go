package test

import (
	"testing"
	"time"
)

// crashCases are about daemons that die, come and go.
var crashCases = []chaosCase{
	{"crash-after-the-sink-accepted", true, crashAfterAccepted},
	{"rebalance-with-grants-held", true, rebalanceWithGrants},
}

// crashAfterAccepted kills a daemon while the receiver has many of its requests, and has not answered them yet.
func crashAfterAccepted(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.receiver.delay = 300 * time.Millisecond
	c.load(6, map[string]float64{"fast": 300, "slow": 20})
	one := c.join("one")
	c.arrived(0.4)
	c.crash(one)
	c.again(one)
	c.healed()
	c.delivered(60 * time.Second)
	if _, duplicates := c.receiver.accepted(""); duplicates == 0 {
		t.Error("nothing was sent twice: the daemon had nothing in flight when it was killed")
	}
}

// rebalanceWithGrants has daemons join and leave while others hold slots. Nothing may be sent twice: every one of them
// drains.
func rebalanceWithGrants(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.load(10, map[string]float64{"fast": 300, "slow": 20})
	one := c.join("one")
	c.arrived(0.2)
	c.join("two")
	c.arrived(0.4)
	c.leave(one)
	c.arrived(0.6)
	c.join("three")
	c.healed()
	c.delivered(60 * time.Second)
}
