package test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/testservices"
)

// storeCases are about the quota store, and about quotas at their edges.
var storeCases = []chaosCase{
	{"redis-down", false, quotas.down, telling{line: "the quota store does not answer", metric: "pacer_store_losses_total"}},
	{"redis-cut", false, overRedis(redisCut), telling{line: "the quota store does not answer"}},
	{"redis-slow", false, overRedis(redisSlow), telling{line: "the quota store does not answer"}},
	{"redis-flushed", false, quotas.flushed, telling{line: "the store has lost its data", metric: "pacer_store_losses_total"}},
	{"redis-failed-over", true, quotas.failedOver, telling{line: "the quota store does not answer"}},
	{"quota-exhausted-for-a-day", false, quotaExhausted, telling{metric: "pacer_quota_denied_total"}},
	{"last-millisecond-of-a-window", false, lastMillisecond, telling{metric: "pacer_quota_denied_total"}},
}

// storeLoad is two daemons with a campaign under a quota and one without; more are variables of their environment.
func (c *chaos) storeLoad(more ...string) {
	c.t.Helper()
	c.load(5, map[string]float64{"limited": 50, "free": 200})
	c.quota("q", int(c.rate(40)), time.Second, "limited")
	c.pair(more...)
}

// storeUse is a load that needs the quota store; more are variables of its daemons.
type storeUse struct {
	begin func(c *chaos, more ...string)
	end   func(c *chaos)
	pause time.Duration // between two losses
}

var quotas = storeUse{begin: (*chaos).storeLoad, end: func(c *chaos) { c.recovers(60 * time.Second) }}

// down kills the quota store, which comes back without its data.
func (u storeUse) down(t *testing.T, c *chaos) {
	store := testservices.FreshRedis(t)
	c.world(t, stackOptions{partitions: 6, redis: store.Addr})
	u.begin(c)
	c.arrived(0.3)
	c.shared(storeRecovery, func() {
		store.Kill()
		time.Sleep(2 * time.Second)
		store.Start(t)
	})
	u.end(c)
}

// overRedis is a case whose network to the quota store is damaged.
func overRedis(damage func(c *chaos, network *proxy)) func(*testing.T, *chaos) {
	return func(t *testing.T, c *chaos) {
		network := newProxy(t, testservices.FreshRedis(t).Addr)
		c.world(t, stackOptions{partitions: 6, redis: network.addr})
		c.storeLoad()
		damage(c, network)
		c.recovers(60 * time.Second)
	}
}

// redisCut resets the connections to the quota store for a while: takes whose answers are lost.
func redisCut(c *chaos, network *proxy) {
	for _, share := range []float64{0.2, 0.4, 0.6} {
		c.arrived(share)
		c.shared(storeRecovery, func() { network.disturb(time.Second, network.cut) })
	}
}

// redisSlow makes the quota store answer late, and then hardly at all.
func redisSlow(c *chaos, network *proxy) {
	c.arrived(0.2)
	network.delay(60*time.Millisecond, 40*time.Millisecond)
	c.arrived(0.4)
	network.heal()
	c.shared(storeRecovery, func() { // so narrow that no more than a few takes pass, and then silent
		network.disturb(2*time.Second, func() { network.narrow(4) })
		network.disturb(2*time.Second, network.silence)
	})
}

// flushed empties the quota store under load, twice.
func (u storeUse) flushed(t *testing.T, c *chaos) {
	store := testservices.FreshRedis(t)
	c.world(t, stackOptions{partitions: 6, redis: store.Addr})
	u.begin(c)
	for _, share := range []float64{0.3, 0.6} {
		c.arrived(share)
		c.bystander.spare(rebuild)
		store.Flush(t)
		time.Sleep(u.pause)
	}
	u.end(c)
}

// failedOver kills the master, and sentinels promote its replica, which may lack what came last.
func (u storeUse) failedOver(t *testing.T, c *chaos) {
	sentinel := testservices.RedisSentinel(t)
	c.world(t, stackOptions{partitions: 6})
	u.begin(c, settingsOf(sentinel)...)
	c.arrived(0.3)
	c.shared(storeRecovery, func() { sentinel.KillMaster() })
	u.end(c)
}

// settingsOf are the variables of daemons that have a Redis with sentinels.
func settingsOf(s *testservices.Sentinel) []string {
	return []string{"PACER_REDIS_MODE=sentinel", "PACER_REDIS_MASTER_NAME=" + s.MasterName, "PACER_REDIS_ADDRS=" + strings.Join(s.Addrs(), ",")}
}

// infoOf is a figure that a Redis tells of itself.
func infoOf(t *testing.T, r *testservices.Redis, section, name string) float64 {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer func() { _ = client.Close() }()
	info, err := client.InfoMap(t.Context(), section).Result()
	noError(t, err)
	for _, figures := range info {
		if text, ok := figures[name]; ok {
			n, err := strconv.ParseFloat(text, 64)
			noError(t, err)
			return n
		}
	}
	t.Fatalf("INFO %s has no %s", section, name)
	return 0
}

// commandsOf is how many commands a Redis has executed since it was started.
func commandsOf(t *testing.T, r *testservices.Redis) float64 {
	t.Helper()
	return infoOf(t, r, "stats", "total_commands_processed")
}

// quotaExhausted uses up a day's quota. The other jobs wait, and nothing spins meanwhile; a raised limit sends them.
func quotaExhausted(t *testing.T, c *chaos) {
	const idle = 4 * time.Second
	store := testservices.FreshRedis(t)
	c.world(t, stackOptions{partitions: 6, redis: store.Addr})
	limit, all := c.jobs(200), c.jobs(1000)
	c.campaign("day", c.rate(200))
	c.stack.quota("q", "closed", fmt.Sprintf("%d/24h", limit))
	c.under("q", "day")
	one := c.join("one")
	c.publish(mix(map[string]int{"day": all}))
	// A slot that the machine's stalls let pass has used up a unit, too.
	c.await(30*time.Second, "the day's jobs", func() bool { return c.receiver.count("")+int(one.metric("pacer_slots_forfeited_total")) >= limit })
	c.await(30*time.Second, "an empty ingress", func() bool { return c.openIn(c.ingress) == 0 })
	time.Sleep(time.Second) // for the last commits

	var spent, wrote, committed, asked float64
	c.still(func() {
		busy, writes, commands := one.processor(), one.metric("pacer_requeue_records_total"), commandsOf(t, store)
		commits := one.metric("pacer_commits_total")
		time.Sleep(idle)
		spent = (one.processor() - busy).Seconds() / idle.Seconds()
		wrote, committed = one.metric("pacer_requeue_records_total")-writes, one.metric("pacer_commits_total")-commits
		asked = (commandsOf(t, store) - commands) / idle.Seconds()
	})
	t.Logf("while the quota is exhausted: %.1f %% of a processor, %.0f records written, %.0f commits, %.1f Redis commands a second",
		100*spent, wrote, committed, asked)
	if spent > 0.15 || wrote > 0 || committed > 2*idle.Seconds() || asked > 50 {
		t.Error("something spins while the quota is exhausted")
	}
	if n := c.receiver.count(""); n > limit {
		t.Errorf("%d jobs sent under a quota of %d a day", n, limit)
		c.row.over += n - limit
	}
	c.stack.quota("q", "closed", fmt.Sprintf("%d/24h", 2*all))
	c.recovers(60 * time.Second)
}

// lastMillisecond has jobs ask in the last moments of a fixed window: granted before the reset and sent after it, they
// must also count in the next window. Campaigns with a quota each begin at different moments before a minute ends, and
// have more jobs than two minutes' worth.
func lastMillisecond(t *testing.T, c *chaos) {
	const campaigns, limit = 10, 30
	c.world(t, stackOptions{partitions: 2})
	var ids []string
	for i := range campaigns {
		id := fmt.Sprint("c", i)
		ids = append(ids, id)
		c.campaign(id, 2000)
		c.sql(`INSERT INTO pacer.quotas (id) VALUES ($1)`, id)
		c.sql(`INSERT INTO pacer.quota_windows (quota_id, span, max_units, algorithm, anchor)
			VALUES ($1, '1 minute', $2, 'fixed', 'minute')`, id, limit)
		c.under(id, id)
	}
	c.joinAll("one", "two")
	reset := time.Now().Add(2 * time.Second).Truncate(time.Minute).Add(time.Minute)
	for i, id := range ids {
		time.Sleep(time.Until(reset.Add(time.Duration(i-campaigns) * 15 * time.Millisecond)))
		c.publish(mix(map[string]int{id: 3 * limit}))
	}
	time.Sleep(time.Until(reset.Add(5 * time.Second)))
	boundary, blur, before := reset.Sub(c.receiver.began).Microseconds(), c.receiver.blur(), 0
	for _, id := range ids {
		before += c.between(id, 0, boundary)
		after := slices.DeleteFunc(c.receiver.arrivals(id), func(a arrival) bool { return a.at-blur(a.at) < boundary })
		if n := len(after); n > limit {
			t.Errorf("%s: %d jobs sent in a minute with a limit of %d", id, n, limit)
			c.row.over += n - limit
		}
		// Grants of the last moments before the reset count in both minutes, so only one minute's worth has to arrive. A slot that passed
		// in a stall has used a unit.
		switch n := c.receiver.count(id); {
		case n > 2*limit:
			t.Errorf("%s: %d jobs sent in two minutes with a limit of %d each", id, n, limit)
			c.row.over += n - 2*limit
		case n < limit*8/10:
			t.Errorf("%s: %d jobs sent in parts of two minutes with a limit of %d each", id, n, limit)
		}
	}
	t.Logf("%d of %d jobs were sent before the reset", before, campaigns*limit)
	if before == 0 {
		t.Error("no job was sent before the reset")
	}
}
