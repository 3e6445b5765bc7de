package test

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

// keyCases are about quotas by a key of the job. Their judge is the verdict: no key is sent more than its window allows, whatever breaks.
var keyCases = []chaosCase{
	{"keys-and-a-killed-daemon", false, keysKilled, telling{}},
	{"keys-and-a-pause", false, keysPaused, telling{}},
	{"keys-during-rebalances", false, keysRebalanced, telling{}},
	{"keys-redis-failed-over", false, keys.failedOver, telling{line: "the quota store does not answer"}},
	{"keys-redis-flushed", false, keys.flushed, telling{line: "the store has lost its data", metric: "pacer_store_losses_total"}},
	{"keys-redis-hangs", false, keysHanging, telling{line: "keyed quotas cannot be read"}},
	{"keys-redis-restarted", false, keys.down, telling{line: "the quota store does not answer", metric: "pacer_store_losses_total"}},
}

// keyBound is what each key of a campaign may be sent in any span.
type keyBound struct {
	campaign string
	most     int
	span     time.Duration
}

const unbound = -1

// keySpan is the window of each key, for one job.
const keySpan = 2 * time.Second

// perKey puts a campaign under a quota of one job in keySpan for each key. That is a part of the verdict. losses is how often each key may get
// its limit once more in a span: 1 where a quota that is open loses its data, unbound where it sends without its store.
func (c *chaos) perKey(campaign, onFailure string, losses int) {
	c.t.Helper()
	id := "per-" + campaign
	c.run("quota", "set", id, "--per", "to", "--window", fmt.Sprintf("1/%s", keySpan), "--on-store-failure", onFailure)
	c.under(id, campaign)
	if losses == unbound {
		return
	}
	c.keys = append(c.keys, keyBound{campaign: campaign, most: 1 + losses, span: keySpan})
}

// overKeys counts the requests that begin a span of a key with more than it may be sent.
func (c *chaos) overKeys() (n int) {
	blur := c.receiver.blur()
	for _, b := range c.keys {
		byKey := map[string][]arrival{}
		for _, a := range c.receiver.arrivals(b.campaign) {
			byKey[keyOf(a.id)] = append(byKey[keyOf(a.id)], a)
		}
		for key, list := range byKey {
			if over := tooMany(list, b.most, b.span, blur); over > 0 {
				if n += over; n <= 5 {
					c.t.Logf("%s: %d requests of key %s begin %s with more than %d, at most %d", b.campaign, over, key, b.span, b.most, rolling(list, b.span))
				}
			}
		}
	}
	return n
}

// keysLoad publishes jobs of a campaign under a closed quota by key, of one under an open quota, and of one without keys. Each key has five jobs,
// at random places, so that some have to wait for it.
func (c *chaos) keysLoad(losses int) {
	c.t.Helper()
	const rate, seconds, each = 50, 10, 5
	n := c.jobs(rate * seconds)
	c.campaign("closed", c.rate(rate))
	c.campaign("open", c.rate(rate))
	c.campaign("free", c.rate(rate))
	c.perKey("closed", "closed", 0)
	c.perKey("open", "open", losses)
	var jobs []job
	order := c.random.Perm(n)
	for i, j := range ofCampaign("free", 0, n) {
		key := order[i] / each
		jobs = append(jobs, keyed("closed", fmt.Sprint("c", key), i), keyed("open", fmt.Sprint("o", key), i), j)
	}
	c.publish(jobs)
}

// keysDelivered expects all jobs, and that some had to wait for their keys.
func (c *chaos) keysDelivered() {
	c.t.Helper()
	c.recovers(90 * time.Second)
	refused := metricOf(c.up, "pacer_key_refused_total")
	c.t.Logf("%.0f times a job was told to wait for its key", refused)
	if refused == 0 {
		c.t.Error("no job had to wait for its key")
	}
}

// keys are that load where the store may lose its data: keys of the closed quota wait for a span, those of the open one may get their limit
// once more. A span sees one loss.
var keys = storeUse{pause: keySpan, end: (*chaos).keysDelivered, begin: func(c *chaos, more ...string) {
	c.keysLoad(1)
	c.pair(more...)
}}

// keysKilled kills one of three daemons. The turns that it gave are hints: its jobs are sent by others, not too close to what it has sent.
func keysKilled(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.keysLoad(0)
	one := c.join("one")
	c.join("two")
	c.join("three")
	c.arrived(0.3)
	c.crash(one)
	c.again(one)
	c.keysDelivered()
}

// keysPaused pauses the campaigns for longer than jobs wait for their keys: many turns come meanwhile.
func keysPaused(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.keysLoad(0)
	c.joinAll("one", "two")
	c.arrived(0.4)
	for _, status := range []string{"paused", "active"} {
		c.setStatus("closed", status)
		c.setStatus("open", status)
		if status == "paused" {
			time.Sleep(c.seconds(5))
		}
	}
	c.keysDelivered()
}

// keysRebalanced has daemons join and leave.
func keysRebalanced(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.keysLoad(0)
	c.comeAndGo()
	c.keysDelivered()
}

// keysHanging stops one of two servers of the store. The bystander and the campaign without keys have their slots in the other one: they go on, as
// if nothing was, although jobs of the same partitions and lanes ask for keys that do not answer.
func keysHanging(t *testing.T, c *chaos) {
	ring := testservices.RedisRing(t, 2)
	c.world(t, stackOptions{partitions: 6})
	c.keysLoad(unbound)
	settings := []string{"PACER_REDIS_MODE=ring", "PACER_REDIS_ADDRS=" + ring[0].Addr + "," + ring[1].Addr}
	c.pair(settings...)
	c.arrived(0.2)
	live := homeShard(bystanderID, len(ring))
	hangs := ring[1-live]
	c.t.Logf("the bystander's slots are in shard %d; those of free in %d", live, homeShard("free", len(ring)))
	from := c.receiver.now()
	hangs.Freeze()
	time.Sleep(c.seconds(5))
	to := c.receiver.now()
	hangs.Thaw()
	c.keptRate("free", c.bounds["free"][0].rate, from, to)
	c.keysDelivered()
}

// homeShard is the shard of a campaign without quotas of its own. A keyed quota is in all shards.
func homeShard(campaign string, count int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(campaign)) // never fails
	return int(h.Sum32()) % count
}
