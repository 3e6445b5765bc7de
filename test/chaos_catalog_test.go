package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/requeue"
)

// catalogUnread is what tells that PostgreSQL is not there.
var catalogUnread = telling{line: "catalog cannot be read", metric: "pacer_catalog_failures_total"}

// catalogCases are about PostgreSQL and the way to it.
var catalogCases = []chaosCase{
	{"postgres-down", false, postgresDown, catalogUnread},
	{"postgres-down-at-a-first-overflow", false, postgresDownAtOverflow, catalogUnread},
	{"daemons-that-disagree", false, daemonsDisagree, telling{line: "catalog cannot be read"}},
	{"postgres-down-during-a-rebalance", false, postgresDownRebalance, catalogUnread},
	{"postgres-down-and-a-daemon-killed", false, postgresDownKill, catalogUnread},
	{"postgres-slow", false, postgresSlow, telling{}},
	{"postgres-slow-during-rebalances", false, postgresSlowRebalance, telling{}},
	{"row-of-a-campaign-gone", false, rowGone, telling{}},
	{"catalog-empty", false, catalogEmpty, telling{line: "the catalog has lost most of its campaigns at once"}},
	{"database-of-yesterday", false, databaseOfYesterday, telling{line: "catalog cannot be read"}},
}

// postgresDown takes the catalog away from daemons that know their campaigns: they go on, and jobs overflow into the lanes that their
// campaigns have. Changes of that time act afterwards.
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
	c.recovers(60 * time.Second)
}

// postgresDownAtOverflow takes the catalog away before any campaign has a lane.
func postgresDownAtOverflow(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	network, dsn := c.catalogNetwork()
	c.campaign("waits", 5)
	c.pair(dsn)
	c.publish(further("waits", "known", 5)) // so that the campaign has been seen
	c.await(20*time.Second, "the first jobs", func() bool { return c.receiver.count("") == 5 })
	network.down()
	c.publish(further("waits", "later", c.jobs(600)))
	c.await(20*time.Second, "jobs in lanes", func() bool { return c.written(requeue.LaneTopic(c.prefix)) >= int64(c.jobs(500)) })
	network.heal()
	c.release()
	c.recovers(60 * time.Second)
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
	c.recovers(60 * time.Second)
}

// postgresDownRebalance takes the catalog away, and then one of three daemons goes: the others take its partitions without
// the stored positions.
func postgresDownRebalance(t *testing.T, c *chaos) {
	c.catalogDown(t, 20, 200, 0.2, func(three *daemon) {
		c.leave(three)
		from := c.receiver.now() + rebalance.Microseconds()
		time.Sleep(10 * time.Second)
		c.keptRates(200, from)
	})
}

// postgresDownKill has a daemon killed while the catalog is down. From the fifteenth second on the others keep all rates.
func postgresDownKill(t *testing.T, c *chaos) {
	c.catalogDown(t, 40, 100, 0.1, func(three *daemon) {
		from := c.receiver.now() + (15 * time.Second).Microseconds()
		c.crash(three)
		time.Sleep(25 * time.Second)
		c.keptRates(100, from)
	})
}

// catalogDown has three daemons send so many seconds of a rate, and jobs from a lane. The catalog goes when a share has arrived, and comes
// back, as does the third daemon, after what happens meanwhile.
func (c *chaos) catalogDown(t *testing.T, seconds, rate, share float64, meanwhile func(three *daemon)) {
	t.Helper()
	c.world(t, stackOptions{partitions: 6})
	network, dsn := c.catalogNetwork()
	c.load(seconds, map[string]float64{"fast": rate})
	c.waits()
	c.pair(dsn)
	three := c.join("three", dsn)
	c.inLanes(c.jobs(300))
	c.arrived(share)
	network.down()
	time.Sleep(time.Second)
	meanwhile(three)
	network.heal()
	c.healed()
	c.again(three, dsn)
	c.release()
	c.delivered(60 * time.Second)
}

// keptRates expects that the campaigns of catalogDown were sent at their rates from a time of the receiver on.
func (c *chaos) keptRates(fast float64, from int64) {
	c.t.Helper()
	for id, rate := range map[string]float64{"fast": c.rate(fast), "waits": 10} {
		c.keptRate(id, rate, from, min(c.receiver.now(), max(from, c.lastOf(id))))
	}
}

// postgresSlow has the catalog answer 0.3 s late, from before the first overflow of one of the campaigns.
func postgresSlow(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	network, dsn := c.catalogNetwork()
	c.load(6, map[string]float64{"fast": 200})
	c.pair(dsn)
	c.arrived(0.2)
	network.delay(300*time.Millisecond, 0)
	from := c.receiver.now()
	c.waits()
	time.Sleep(5 * time.Second)
	c.keptRate("fast", c.rate(200), from, min(c.receiver.now(), c.lastOf("fast")))
	c.release()
	c.delivered(60 * time.Second)
	network.heal()
	c.noneDead()
}

// postgresSlowRebalance has the catalog answer 0.3 s late while one of three daemons goes and comes again. The other campaigns do not
// wait for the database.
func postgresSlowRebalance(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	network, dsn := c.catalogNetwork()
	c.load(20, map[string]float64{"fast": 100})
	c.pair(dsn)
	three := c.join("three", dsn)
	c.arrived(0.2)
	network.delay(300*time.Millisecond, 0)
	time.Sleep(3 * time.Second)
	c.leave(three)
	time.Sleep(6 * time.Second)
	c.again(three, dsn)
	three.awaitReady(30 * time.Second)
	time.Sleep(6 * time.Second)
	c.delivered(60 * time.Second)
	network.heal()
	c.noneDead()
}

// rolled stops a daemon in order and returns it.
func (c *chaos) rolled(name string) *daemon {
	c.t.Helper()
	for _, d := range c.up {
		if d.name == name {
			c.leave(d)
			return d
		}
	}
	c.t.Fatalf("no daemon %s", name)
	return nil
}

// rowGone deletes the rows of campaigns for a moment, as a careless script does: one whose jobs are sent at once, and one
// with a backlog in a lane.
func rowGone(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.brokerLoad()
	c.campaign("other", c.rate(50))
	c.publish(mix(map[string]int{"other": c.jobs(50 * 10)}))
	c.withoutRows(`id IN ('fast', 'waits')`, func() { time.Sleep(4 * time.Second) })
}

// withoutRows deletes such campaigns once a share of the jobs has arrived, and brings them back after what happens meanwhile. All jobs arrive.
func (c *chaos) withoutRows(such string, meanwhile func()) {
	c.t.Helper()
	c.arrived(0.2)
	c.keep()
	c.sql(`DELETE FROM pacer.campaigns WHERE ` + such)
	meanwhile()
	c.sql(`INSERT INTO pacer.campaigns SELECT * FROM yesterday.campaigns WHERE ` + such)
	c.healed()
	c.release()
	c.delivered(60 * time.Second)
	c.noneDead()
}

// catalogEmpty deletes every campaign for a while: daemons do not believe that, and go on.
func catalogEmpty(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.brokerLoad()
	c.withoutRows(`true`, func() {
		from := c.receiver.now()
		time.Sleep(5 * time.Second)
		c.keptRate("fast", c.rate(200), from, min(c.receiver.now(), max(from, c.lastOf("fast"))))
	})
}

// databaseOfYesterday brings back the database as it was before any job of the case was there: no positions and no lanes.
// Nothing is lost or repeated. Limits that are changed afterwards act, though the quota store has seen later revisions.
func databaseOfYesterday(t *testing.T, c *chaos) {
	other := newReceiver(t)
	c.world(t, stackOptions{partitions: 6, sinks: fmt.Sprintf("  other: {type: http, url: %q}", other.url)})
	network, dsn := c.catalogNetwork()
	c.campaign("fast", c.rate(200))
	c.campaign("waits", 10)
	c.stack.campaign("limited", 50)
	c.sql(`UPDATE pacer.campaigns SET sink = 'other' WHERE id = 'limited'`)
	c.keep()
	for rate := range 20 {
		c.sql(`UPDATE pacer.campaigns SET send_rate = $1 WHERE id = 'limited'`, 51+rate)
	}
	c.stack.publish(ofCampaign("limited", 0, 50))
	c.publish(mix(map[string]int{"fast": c.jobs(200 * 10), "waits": c.jobs(400)}))
	c.pair(dsn)
	c.inLanes(c.jobs(300))
	c.arrived(0.3)
	time.Sleep(6 * time.Second) // positions are kept every 5 s
	network.down()
	c.restore()
	network.heal()
	c.healed()
	c.again(c.rolled("one"), dsn)
	time.Sleep(3 * time.Second)
	c.release()
	c.delivered(60 * time.Second)
	c.noneDead()
	c.await(90*time.Second, "a line of what was brought back", func() bool {
		return linesOf(c.up, "level=ERROR", "the database is older")+linesOf(c.up, "level=WARN", "the quota store has seen a newer revision") > 0
	})
	c.run("migrate", "catch-up")
	const rate, seconds = 5, 10
	c.sql(`UPDATE pacer.campaigns SET send_rate = $1 WHERE id = 'limited'`, rate)
	time.Sleep(time.Second)
	from := other.count("")
	c.stack.publish(ofCampaign("limited", 50, 500))
	time.Sleep(seconds * time.Second)
	if n := other.count("") - from; n == 0 || n > 2*rate*seconds {
		t.Errorf("%d jobs in %d s after the rate was set to %d/s", n, seconds, rate)
	}
}

// tables are those of the catalog and the daemons; the versions of migrations and sequences are apart.
func (c *chaos) tables() (names []string) {
	c.t.Helper()
	rows, err := c.db.Query(context.Background(),
		`SELECT tablename::text FROM pg_tables WHERE schemaname = 'pacer' AND tablename NOT LIKE '%version%' ORDER BY 1`)
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	noError(c.t, err)
	return names
}

// keep copies the database's tables.
func (c *chaos) keep() {
	c.t.Helper()
	c.sql(`CREATE SCHEMA yesterday`)
	for _, name := range c.tables() {
		c.sql(`CREATE TABLE yesterday.` + name + ` AS TABLE pacer.` + name)
	}
	c.sql(`CREATE TABLE yesterday.sequence AS SELECT last_value FROM pacer.revisions`)
}

// restore brings the kept tables back.
func (c *chaos) restore() {
	c.t.Helper()
	statements := []string{`BEGIN`, `SET LOCAL session_replication_role = replica`} // no triggers
	names := c.tables()
	for _, name := range names {
		statements = append(statements, `DELETE FROM pacer.`+name)
	}
	for _, name := range names {
		statements = append(statements, `INSERT INTO pacer.`+name+` OVERRIDING SYSTEM VALUE SELECT * FROM yesterday.`+name)
	}
	statements = append(statements, `SELECT setval('pacer.revisions', (SELECT last_value FROM yesterday.sequence))`, `COMMIT`)
	for _, s := range statements {
		c.sql(s)
	}
}

// further are n further jobs of a campaign, whose ids begin with a word of their own.
func further(campaign, word string, n int) []job {
	jobs := mix(map[string]int{campaign: n})
	for i := range jobs {
		jobs[i].id = word + "-" + jobs[i].id
	}
	return jobs
}
