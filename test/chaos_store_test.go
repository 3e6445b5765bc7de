package test

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/harness"
)

// storeCases are about the quota store.
var storeCases = []chaosCase{
	{"redis-down", true, redisDown},
}

// redisDown kills the quota store, which comes back without its data.
func redisDown(t *testing.T, c *chaos) {
	store := harness.FreshRedis(t)
	c.world(t, stackOptions{partitions: 6, redis: store.Addr})
	c.storeLoad()
	c.arrived(0.3)
	store.Kill()
	time.Sleep(3 * time.Second)
	store.Start(t)
	c.healed()
	c.delivered(60 * time.Second)
}

// storeLoad is two daemons with a campaign under a quota and one without.
func (c *chaos) storeLoad() {
	c.t.Helper()
	c.load(6, map[string]float64{"limited": 60, "free": 200})
	c.quota("q", int(c.rate(40)), time.Second, "limited")
	c.join("one")
	c.join("two")
}
