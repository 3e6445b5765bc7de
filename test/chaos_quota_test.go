package test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

// quotaCases are about how much of a quota is used, and what is known of it, when daemons and the store come and go.
var quotaCases = []chaosCase{
	{"quota-of-three-windows", false, threeWindows, telling{metric: "pacer_quota_denied_total"}},
	{"quota-flushed-in-the-middle", false, quotaFlushed, telling{line: "the store has lost its data", metric: "pacer_store_losses_total"}},
	{"usage-after-five-crashes", false, usageAfterCrashes, telling{}},
	{"quota-of-five-windows", false, fiveWindows, telling{line: "the store has lost its data", metric: "pacer_store_losses_total"}},
}

// three are the windows of a quota whose tightest is the longest.
var three = []window{{40, time.Second}, {150, 5 * time.Second}, {400, 20 * time.Second}}

// period is after how long a window of so long a span, whose oldest part counts in full, has room again.
func period(span time.Duration) time.Duration { return span + span/60 + 100*time.Millisecond }

// shareThree has three daemons send three campaigns under one quota of three windows, which are a part of the verdict.
func (c *chaos) shareThree(jobs int) (ids []string, daemons []*daemon) {
	c.t.Helper()
	ids = []string{"a", "b", "c"}
	numbers := map[string]int{}
	for _, id := range ids {
		c.campaign(id, 200)
		numbers[id] = jobs
	}
	c.windowed(three, ids)
	daemons = c.joinAll("one", "two", "three")
	c.publish(mix(numbers))
	return ids, daemons
}

// windowed puts campaigns under one quota of windows, which are a part of the verdict.
func (c *chaos) windowed(windows []window, campaigns []string) {
	c.t.Helper()
	c.stack.quota("q", "closed", textsOf(windows, "")...)
	c.under("q", campaigns...)
	for _, w := range windows {
		c.windows = append(c.windows, windowBound{campaigns: campaigns, limit: w.limit, span: w.span})
	}
}

// forfeited returns how many slots have passed unused. Each has used a unit.
func forfeited(daemons []*daemon) int { return int(metricOf(daemons, "pacer_slots_forfeited_total")) }

// threeWindows: of the tightest window 99 % are used, and each campaign has its third of that.
func threeWindows(t *testing.T, c *chaos) {
	const spans = 3
	tightest := three[len(three)-1]
	c.world(t, stackOptions{partitions: 6})
	ids, daemons := c.shareThree(1000)
	c.await(30*time.Second, "the first job", func() bool { return c.receiver.count("") > 0 })
	first := c.receiver.arrivals("")[0].at
	end := first + spans*period(tightest.span).Microseconds() - 1_000_000 // not the next span's first
	time.Sleep(time.Duration(end-c.receiver.now()) * time.Microsecond)
	missed := forfeited(daemons)
	n := c.between("", first, end)
	t.Logf("%d of %d units in %d spans, and %d slots passed unused", n, spans*tightest.limit, spans, missed)
	if n+missed < spans*tightest.limit*99/100 {
		t.Errorf("%d of %d units were used", n, spans*tightest.limit)
	}
	for _, id := range ids {
		off := math.Abs(float64(c.between(id, first, end))*3/float64(n) - 1)
		t.Logf("%s is %.1f %% off its third", id, 100*off)
		if off > 0.02+3*float64(missed)/float64(n) {
			t.Errorf("%s is %.1f %% off its third", id, 100*off)
		}
	}
}

// quotaFlushed empties the store in the middle of the longest window. It waits for a span; after that it is used as before.
func quotaFlushed(t *testing.T, c *chaos) {
	const spans = 2
	tightest := three[len(three)-1]
	store := testservices.FreshRedis(t)
	c.world(t, stackOptions{partitions: 6, redis: store.Addr})
	_, daemons := c.shareThree(1000)
	c.await(30*time.Second, "half of the first span's jobs", func() bool { return c.receiver.count("") > tightest.limit/2 })
	c.bystander.spare(rebuild)
	store.Flush(t)
	flushed := c.receiver.now()
	c.healed()
	const settled = int64(2_000_000) // slots that are granted may still be used
	c.await(tightest.span+10*time.Second, "a job after the loss", func() bool {
		return c.between("", flushed+settled, c.receiver.now()) > 0
	})
	first := c.during("", flushed+settled, forever)[0].at
	before := forfeited(daemons)
	end := first + spans*period(tightest.span).Microseconds() - 1_000_000 // not the next span's first
	time.Sleep(time.Duration(end-c.receiver.now()) * time.Microsecond)
	n, missed := c.between("", first, end), forfeited(daemons)-before
	t.Logf("sent again after %.1f s; then %d of %d units in %d spans, and %d slots passed unused", float64(first-flushed)/1e6, n,
		spans*tightest.limit, spans, missed)
	if n+missed < spans*tightest.limit*95/100 {
		t.Errorf("%d of %d units were used after the loss", n, spans*tightest.limit)
	}
}

// fiveWindows: a daemon is killed, Redis fails over, PostgreSQL is restored from a backup of before both, and then Redis loses everything. Of the
// tightest of the windows that are rebuilt, 95 % are used in its first span. The last jobs wait for the longest, which has fewer units than
// there are jobs.
func fiveWindows(t *testing.T, c *chaos) {
	windows := []window{{40, time.Second}, {190, 5 * time.Second}, {740, 20 * time.Second}, {6400, 4 * time.Minute}, {7200, 6 * time.Minute}}
	sentinel := testservices.RedisSentinel(t)
	c.world(t, stackOptions{partitions: 6})
	network, dsn := c.catalogNetwork()
	settings := append(settingsOf(sentinel), dsn)
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		c.campaign(id, 100)
	}
	c.windowed(windows, ids)
	one := c.join("one", settings...)
	c.join("two", settings...)
	c.join("three", settings...)
	c.publish(mix(map[string]int{"a": 2500, "b": 2500, "c": 2500}))
	await := func(jobs int) {
		c.await(2*time.Minute, fmt.Sprintf("%d jobs", jobs), func() bool { return c.receiver.count("") >= jobs })
	}
	await(500)
	c.keep()
	await(1000)
	c.crash(one)
	c.again(one, settings...)
	c.shared(storeRecovery, func() { sentinel.KillMaster() })
	await(2000)
	network.down()
	c.restore()
	network.heal()
	await(3000)
	c.bystander.spare(rebuild)
	sentinel.Master().Flush(t)
	c.healed()
	first := c.receiver.arrivals("")[0].at
	end := first + windows[3].span.Microseconds()
	time.Sleep(time.Duration(end-c.receiver.now()) * time.Microsecond)
	n, limit := c.between("", first, end)+forfeited(c.up), windows[3].limit
	t.Logf("%d of %d units in the first %s", n, limit, windows[3].span)
	if n < limit*95/100 {
		t.Errorf("%d of %d units were used in the first %s", n, limit, windows[3].span)
	}
	c.delivered(5 * time.Minute) // after a rebuild, units of a minute leave a window together
}

// usageAfterCrashes kills a daemon five times. `pacer quota usage` says what was sent, to a second's units, a few seconds later.
func usageAfterCrashes(t *testing.T, c *chaos) {
	const perSecond, lives, each = 50, 5, 600
	c.world(t, stackOptions{partitions: 6})
	c.campaign("day", perSecond)
	c.stack.quota("q", "closed", "1000000/1d")
	c.under("q", "day")
	one := c.join("one")
	c.join("two")
	c.publish(mix(map[string]int{"day": (lives + 4) * each})) // the other daemon goes on while one is down
	for range lives {
		n := c.receiver.count("day") + each
		c.await(2*time.Minute, fmt.Sprintf("%d jobs", n), func() bool { return c.receiver.count("day") >= n })
		c.crash(one)
		c.again(one)
		one.awaitReady(30 * time.Second)
	}
	c.recovers(3 * time.Minute)
	sent := c.receiver.count("day") + forfeited(c.up)
	used := 0
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Second) {
		used = c.usage("q")
		if used >= sent-perSecond && used <= sent+perSecond || time.Now().After(deadline) {
			break
		}
	}
	t.Logf("%d units sent, and %d used by quota usage", sent, used)
	if used < sent-perSecond || used > sent+perSecond { // slots that passed unused may have been handed back
		t.Errorf("%d units used by quota usage, though %d were sent", used, sent)
	}
}

// usage is what `pacer quota usage` says of the last two hours.
func (s *stack) usage(quota string) (units int) {
	s.t.Helper()
	var said struct {
		Steps []struct {
			Units int `json:"units"`
		} `json:"steps"`
	}
	s.unmarshal(s.run("quota", "usage", quota, "--last", "2h", "--step", "1h", "--json"), &said)
	for _, step := range said.Steps {
		units += step.Units
	}
	return units
}
