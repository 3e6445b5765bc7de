package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

const setRate = `UPDATE pacer.campaigns SET send_rate = $2 WHERE id = $1`

func hasRate(id string, rate int64) func(*delivery.Snapshot) bool {
	return func(s *delivery.Snapshot) bool {
		return s.Campaign(id) != nil && s.Campaign(id).Rate == delivery.PerSecond(rate)
	}
}

// TestNoUpdateIsLostAtStart commits updates around the start of a catalog: before LISTEN, between LISTEN and the
// first read, and after. None may be missing, and no poll comes to help.
func TestNoUpdateIsLostAtStart(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('spring')`)
	for round := range int64(25) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			p := running(t, Options{DSN: dsn, PollInterval: time.Hour})
			changed := p.Subscribe()
			last := int64(0)
			for until := time.Now().Add(time.Duration(round) * time.Millisecond); time.Now().Before(until) || last == 0; {
				last = 1 + rand.Int64N(100_000)
				run(t, conn, setRate, "spring", last)
			}
			await(t, p, changed, "the last update", hasRate("spring", last))
		})
	}
}

// TestConcurrentWriters commits many overlapping transactions in another order than that of their begin. Everything must arrive by
// notifications alone, and without reading everything again.
func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	registry := prometheus.NewRegistry()
	setup := connected(t, dsn)
	run(t, setup, `INSERT INTO pacer.campaigns (id) SELECT 'c' || g FROM generate_series(0, 39) g`)
	run(t, setup, `INSERT INTO pacer.quotas (id) VALUES ('q')`)
	p := started(t, Options{DSN: dsn, PollInterval: time.Hour, Registerer: registry})
	changed := p.Subscribe()
	await(t, p, changed, "forty campaigns", func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 40 })
	full := testutil.ToFloat64(p.metrics.loads[loadFull])

	var writers sync.WaitGroup
	for w := range 6 {
		conn := connected(t, dsn)
		writers.Go(func() {
			for i := range 30 {
				var err error
				var server *pgconn.PgError
				for again := true; again; again = errors.As(err, &server) && server.Code == "40P01" { // one of two that wait for each other
					err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
						for range 1 + rand.IntN(3) {
							if _, err := tx.Exec(t.Context(), setRate, fmt.Sprintf("c%d", rand.IntN(40)), 1+rand.IntN(1000)); err != nil {
								return err
							}
						}
						_, err := tx.Exec(t.Context(), `INSERT INTO pacer.campaign_quotas VALUES ($1, 'q') ON CONFLICT DO NOTHING`,
							fmt.Sprintf("c%d", rand.IntN(40)))
						return err
					})
				}
				if err != nil {
					t.Errorf("writer %d, transaction %d: %v", w, i, err)
				}
			}
		})
	}
	writers.Wait()
	run(t, setup, setRate, "c0", 4711)
	s := await(t, p, changed, "the last change", hasRate("c0", 4711))
	if testutil.ToFloat64(p.metrics.loads[loadFull]) != full {
		t.Error("an incremental load would have done")
	}
	same(t, setup, s)
}

// same compares a snapshot with the tables.
func same(t *testing.T, conn *pgx.Conn, s *delivery.Snapshot) {
	t.Helper()
	rows := try(queryCampaigns(t.Context(), conn, ""))(t)
	if len(rows) != len(s.Campaigns) {
		t.Fatalf("%d campaigns, the table has %d", len(s.Campaigns), len(rows))
	}
	for _, row := range rows {
		c := s.Campaign(row.ID)
		if c == nil || c.Revision != row.Revision || fmt.Sprintf("%s/s", row.Rate) != c.Rate.String() || len(c.Quotas) != len(row.Quotas) {
			t.Errorf("snapshot %+v, table %+v", c, row)
		}
	}
}

// doorOf decides whether anybody can connect to the database. Those who have stay.
func doorOf(t *testing.T, dsn string) func(open bool) {
	t.Helper()
	outside, database := connected(t, testservices.PostgresDSN(t)), strings.TrimPrefix(parsed(t, dsn).Path, "/")
	return func(open bool) {
		t.Helper()
		run(t, outside, fmt.Sprintf(`ALTER DATABASE %s ALLOW_CONNECTIONS %t`, database, open))
	}
}

const endListener = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`

// TestListenerBack changes a rate while nothing listens and no poll is near: the load that follows the new LISTEN
// finds it. Nobody can connect until the rate is changed, or it might listen again before that.
func TestListenerBack(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('spring')`)
	p := started(t, Options{DSN: dsn, PollInterval: time.Hour})
	changed := p.Subscribe()
	door := doorOf(t, dsn)
	for i := range int64(3) {
		eventually(t, "it listens", p.listening.Load)
		quiet := p.Snapshot().LoadedAt
		door(false)
		run(t, conn, endListener)
		eventually(t, "it has looked at what the lost connection means", func() bool {
			return !p.listening.Load() && p.Snapshot().LoadedAt.After(quiet)
		})
		run(t, conn, setRate, "spring", i+1)
		door(true)
		await(t, p, changed, "the change", hasRate("spring", i+1))
	}
}

// TestAListenerThatHearsNothing, since its connection is dead or a pooler has given its session to others, is given up, and is no listener.
func TestAListenerThatHearsNothing(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	p := unstarted(t, Options{DSN: dsn, PollInterval: 10 * time.Millisecond})
	conn := try(pgx.Connect(t.Context(), dsn))(t)
	if p.hear(t.Context(), conn, "its_own") {
		t.Error("it has heard something")
	}
	if !conn.IsClosed() || p.listening.Load() {
		t.Errorf("closed: %t, listening: %t", conn.IsClosed(), p.listening.Load())
	}
}

// TestNoStatementHasAName: a pooler in transaction mode gives each transaction another session.
func TestNoStatementHasAName(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	p := started(t, Options{DSN: dsn, PollInterval: 10 * time.Millisecond})
	try(adminOver(p).quota(t.Context(), "q", QuotaChange{Windows: &[]string{"5/1m"}}))(t)
	pool := try(p.database.pool())(t)
	for range pool.Stat().TotalConns() {
		session := try(pool.Acquire(t.Context()))(t)
		defer session.Release()
		equal(t, "statements with names", value[int](t, session.Conn(), `SELECT count(*) FROM pg_prepared_statements`), 0)
	}
}

// TestPollFindsWhatNotificationsMissed: first the listener is lost, and the log says so; then there are no notifications.
func TestPollFindsWhatNotificationsMissed(t *testing.T) {
	dsn, conn := fresh(t)
	door := doorOf(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('spring'), ('autumn')`)
	var log journal
	p := started(t, Options{DSN: dsn, PollInterval: 50 * time.Millisecond, Logger: log.logger()})
	changed := p.Subscribe()
	door(false)
	run(t, conn, endListener)
	eventually(t, "that nobody listens is logged", func() bool { return log.count("catalog notifications do not arrive") == 1 })
	run(t, conn, setRate, "spring", 6)
	await(t, p, changed, "the rate", hasRate("spring", 6))
	must(t, p.Healthy())
	door(true)
	eventually(t, "it listens again", func() bool { return log.count("catalog notifications arrive again") == 1 })
	run(t, conn, `CREATE OR REPLACE FUNCTION pacer.record_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	run(t, conn, `CREATE OR REPLACE FUNCTION pacer.number_removal() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN UPDATE pacer.revision SET removed = nextval(''pacer.revisions''); RETURN NULL; END'`)
	run(t, conn, setRate, "spring", 7)
	await(t, p, changed, "the rate", hasRate("spring", 7))
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'autumn'`)
	await(t, p, changed, "the deletion", func(s *delivery.Snapshot) bool { return s.Campaign("autumn") == nil })
	loaded := p.Snapshot().LoadedAt
	eventually(t, "LoadedAt moves though nothing changed", func() bool { return p.Snapshot().LoadedAt.After(loaded) })
}

// TestDatabaseGone shuts the door on a running catalog: the last snapshot stays, one line is logged, and it heals. Those who wait for the next
// read do not have it tried more often.
func TestDatabaseGone(t *testing.T) {
	dsn, conn := fresh(t)
	door := doorOf(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('spring', 5)`)
	var log journal
	p := started(t, Options{DSN: dsn, PollInterval: 50 * time.Millisecond, Logger: log.logger()})
	await(t, p, p.Subscribe(), "the campaign", hasRate("spring", 5))
	door(false)
	run(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	eventually(t, "it is degraded", func() bool { return p.Healthy() != nil })
	if !p.Ready() || !hasRate("spring", 5)(p.Snapshot()) {
		t.Error("the last snapshot is gone")
	}
	refused(t, ErrUnreachable, "")(p.LoadPositions(t.Context(), "pacer"))
	failures := testutil.ToFloat64(p.metrics.failures)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	p.Refresh(ctx)
	if tries := testutil.ToFloat64(p.metrics.failures) - failures; tries > 15 {
		t.Errorf("%g tries within a second", tries)
	}
	eventually(t, "it keeps trying", func() bool { return testutil.ToFloat64(p.metrics.failures) >= failures+3 })
	door(true)
	run(t, conn, setRate, "spring", 6)
	p.Refresh(t.Context())
	equal(t, "the change made meanwhile is there", hasRate("spring", 6)(p.Snapshot()), true)
	eventually(t, "it is healthy", func() bool { return p.Healthy() == nil })
	eventually(t, "the recovery is logged", func() bool { return log.count("catalog can be read again") == 1 })
	if n := log.count("level=WARN msg=\"catalog cannot be read"); n < 1 || n > 2 { // the cut and the refusal may differ
		t.Errorf("the outage was logged %d times: %s", n, log.text.String())
	}
}

// TestHowLongTheDatabaseDidNotAnswer is said as it was, also where the caller has less patience.
func TestHowLongTheDatabaseDidNotAnswer(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `BEGIN`)
	run(t, conn, `LOCK TABLE pacer.campaigns, pacer.positions`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	const says = "0ms; is it overloaded, or does an open transaction hold what is to be changed?"
	refused(t, context.DeadlineExceeded, says)(unstarted(t, Options{DSN: dsn}).LoadPositions(ctx, "pacer"))
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	refused(t, context.DeadlineExceeded, says)(adminOf(t, dsn).ListCampaigns(ctx))
}

// TestOldSchema starts before the schema exists: it waits, names the command, migrates nothing, and then goes on.
func TestOldSchema(t *testing.T) {
	t.Parallel()
	dsn := testservices.Database(t)
	var log journal
	p := running(t, Options{DSN: dsn, PollInterval: 50 * time.Millisecond, Logger: log.logger()})
	changed := p.Subscribe()
	eventually(t, "it reports the schema", func() bool { return errors.Is(p.Healthy(), ErrSchema) })
	refused(t, ErrSchema, "")(p.LoadPositions(t.Context(), "pacer"))
	m := migrator(t, dsn)
	if status := try(m.Status(t.Context()))(t); status[0].Applied {
		t.Fatalf("the daemon migrated: %+v", status)
	}
	try(m.Up(t.Context()))(t)
	await(t, p, changed, "it is ready", func(*delivery.Snapshot) bool { return true })
	equal(t, "lines with the remedy", log.count("pacer migrate up"), 1)
	run(t, connected(t, dsn), `DELETE FROM `+versionTable+` WHERE version_id = $1`, newestVersion())
	line(t, unstarted(t, Options{DSN: dsn}).load(t.Context(), true), ErrSchema, "")
}

// TestUnusableRows brings rows past the triggers, as a restored dump may: they are held, everything else loads, and
// each is logged once per revision.
func TestUnusableRows(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `SELECT setval('pacer.revisions', 100)`)
	run(t, conn, `SET session_replication_role = replica`)
	campaigns := map[string]string{
		"rate": `send_rate = -1`, "digits": `send_rate = 999999.123457`, "infinite": `send_rate = 'Infinity'`, "per": `send_per = '0'`,
		"long": `send_per = '170000000 years'`, "months": `send_per = '-1 month'`, "status": `status = 'asleep'`, "overflow": `overflow = ''`,
		"weight": `priority_weight = 0`, "burst": `burst = -1`, "flight": `max_in_flight = -1`, "ttl": `job_ttl = '-1 second'`,
		"hours": `active_hours = '{"mon": "09:00"}'`, "hour": `active_hours = '[{"from": "9", "to": "21:00"}]'`,
		"day":  `active_hours = '[{"days": ["monday"], "from": "09:00", "to": "21:00"}]'`,
		"mars": `time_zone = 'Mars/Olympus', active_hours = '[{"from": "09:00", "to": "21:00"}]'`,
		"here": `time_zone = 'Local', active_hours = '[{"from": "09:00", "to": "21:00"}]'`,
		"ramp": `ramp_since = now(), ramp = '{"from": 10}'`, "list": `ramp_since = now(), ramp = '[]'`,
		"every": `ramp_since = now(), ramp = '{"start": 1, "add": 1, "every": "1 month"}'`,
		"steps": `ramp_since = now(), send_rate = 10002, ramp = '{"start": 1, "add": 1, "every": "1 minute"}'`,
		"since": `ramp_since = 'infinity', ramp = '{"start": 1, "add": 1, "every": "1 minute"}'`, "revision": `revision = 549755813888`,
		"good": `send_rate = 5`, "start": `starts_at = 'infinity'`, // these can be used
	}
	for id, set := range campaigns {
		run(t, conn, `INSERT INTO pacer.campaigns (id, revision) VALUES ($1, 4)`, id)
		run(t, conn, `UPDATE pacer.campaigns SET `+set+` WHERE id = $1`, id)
	}
	run(t, conn, `INSERT INTO pacer.campaigns (id, revision) VALUES ('orphan', 4), ('spa ce', 4)`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas VALUES ('orphan', 'nowhere')`)
	quotas := map[string]string{
		"limit": "", "anchor": "", "zone": "", "length": "", "log": "", "even": "spend = 'even'", "mode": "mode = ''",
		"policy": "on_store_failure = 'x'", "unit": "unit = 'calls'", "traffic": "unit = 'bytes'", "rollout": "rollout = 101", "shard": "shard = -1",
	}
	for id, set := range quotas {
		run(t, conn, `INSERT INTO pacer.quotas (id, revision, shard) VALUES ($1, 3, 0)`, "q-"+id)
		if set != "" {
			run(t, conn, `UPDATE pacer.quotas SET `+set+` WHERE id = $1`, "q-"+id)
		}
		run(t, conn, `INSERT INTO pacer.campaigns (id, revision) VALUES ($1, 4)`, "c-"+id)
		run(t, conn, `INSERT INTO pacer.campaign_quotas VALUES ($1, $2)`, "c-"+id, "q-"+id)
	}
	run(t, conn, `INSERT INTO pacer.quota_windows VALUES ('q-limit', '1 minute', -1, 'sliding', null), ('q-anchor', '1 day', 1, 'sliding', 'day'),
('q-zone', '1 day', 1, 'fixed', 'day@Nowhere'), ('q-length', '30 days', 1, 'fixed', 'month'), ('q-log', '1 day', 10001, 'log', null),
('q-even', '1 day', 68719476737, 'sliding', null)`)
	var log journal
	p := unstarted(t, Options{DSN: dsn, Logger: log.logger()})
	s := loaded(t, p, true)
	for id, c := range s.Campaigns {
		usable := id == "good" || id == "start"
		if (c.Invalid == "") != usable || strings.Contains(c.Invalid, "\n") {
			t.Errorf("campaign %s: invalid %q", id, c.Invalid)
		}
	}
	a := adminOver(p)
	equal(t, "campaigns that are listed", len(try(a.ListCampaigns(t.Context()))(t)), len(s.Campaigns))
	equal(t, "quotas that are listed", len(try(listQuotas(t.Context(), a))(t)), len(quotas))
	run(t, conn, `INSERT INTO pacer.destinations (id, url, disabled_at) VALUES ('shop-7', 'https://a.example/', 'infinity')`)
	equal(t, "destinations that are listed", len(try(a.DestinationsAfter(t.Context(), "", 10))(t)), 1)
	held := len(campaigns) + len(quotas) // with orphan and spa ce, without the two that can be used
	equal(t, "campaigns", len(s.Campaigns), held+2)
	loaded(t, p, true)
	equal(t, "lines", log.count("campaign is held"), held)
	run(t, conn, `SET session_replication_role = origin`)
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'revision'`) // nothing is newer than that
	run(t, conn, `UPDATE pacer.campaigns SET status = 'active' WHERE id = 'status'`)
	equal(t, "the fault of a campaign that is usable again", loaded(t, p, false).Campaign("status").Invalid, "")
}

// TestWrongDSN: one clear line, before anything is connected, and never the password.
func TestWrongDSN(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"", "postgres://pacer:hunter2@127.0.0.1:port/pacer", "postgres://pacer:hunter2%zz@h/pacer", "pacer hunter2",
		"postgres://pacer:hunter2/x@127.0.0.1/pacer?sslmode=perhaps", "host=h password=hunter2 port=x", "postgres://u:hunter2@h:1/d?pool_max_conns=many",
	} {
		_, err := NewPostgres(Options{DSN: dsn})
		if line(t, err, ErrInvalid, "postgres.dsn"); strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
}

// TestUnreachable: a daemon that cannot connect names the address in one line, without the password.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	there := parsed(t, testservices.PostgresDSN(t))
	closed := *there
	closed.Host = "127.0.0.1:1"
	closed.User = url.UserPassword("pacer", "hunter2")
	absent := *there
	absent.Path = "/no_such_database"
	for dsn, want := range map[string]string{
		closed.String(): "postgres.dsn: cannot connect to 127.0.0.1:1 as pacer, database " + strings.TrimPrefix(there.Path, "/") + ": connection refused",
		absent.String(): `database "no_such_database" does not exist`,
	} {
		var log journal
		p := running(t, Options{DSN: dsn, PollInterval: 50 * time.Millisecond, Logger: log.logger()})
		eventually(t, "it fails twice", func() bool { return testutil.ToFloat64(p.metrics.failures) >= 2 })
		line(t, p.Healthy(), ErrUnreachable, want)
		if p.Ready() || p.Snapshot() != nil || log.count("level=WARN") != 1 || log.count("hunter2") > 0 {
			t.Errorf("ready: %t, the log: %s", p.Ready(), log.text.String())
		}
	}
}

func parsed(t testing.TB, dsn string) *url.URL {
	t.Helper()
	return try(url.Parse(dsn))(t)
}

// TestCampaignsWithoutASinkAreCounted: as long as they have jobs to send.
func TestCampaignsWithoutASinkAreCounted(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id, sink, status) VALUES ('fine', null, 'active'), ('typo', 'typo', 'active'),
('paused', 'typo', 'paused'), ('over', 'typo', 'cancelled')`)
	p := started(t, Options{DSN: dsn, HasSink: func(name string) bool { return name == "" }})
	equal(t, "counted", testutil.ToFloat64(p.metrics.invalid), 2)
	run(t, conn, `UPDATE pacer.campaigns SET sink = null`)
	eventually(t, "they can send", func() bool { return testutil.ToFloat64(p.metrics.invalid) == 0 })
}

// TestAFullLoadCompares: rows that are as they were stay the same campaigns, and no reader is woken for them. Changes without a revision
// are found.
func TestAFullLoadCompares(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('q1'), ('q2')`)
	run(t, conn, `INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('q1', '1 minute', 5), ('q2', '1 hour', 7)`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, sink) SELECT 'c' || i, i, 'receiver' FROM generate_series(1, 50) i`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas SELECT 'c' || i, 'q1' FROM generate_series(1, 10) i`)
	p := unstarted(t, Options{DSN: dsn})
	woken := p.Subscribe()
	changed := func(s, since *delivery.Snapshot) []string { return slices.Sorted(s.Changed(since)) }
	first := loaded(t, p, true)
	<-woken
	if len(first.Campaigns) != 50 || len(first.Campaigns["c3"].Quotas) != 1 || first.Campaigns["c3"].Sink != "receiver" {
		t.Fatalf("%d campaigns, c3 %+v", len(first.Campaigns), first.Campaigns["c3"])
	}
	again := loaded(t, p, true)
	if !maps.Equal(first.Campaigns, again.Campaigns) || !maps.Equal(first.Quotas, again.Quotas) || len(woken) != 0 ||
		len(changed(again, first)) != 0 || !again.LoadedAt.After(first.LoadedAt) {
		t.Errorf("a load of what was known changes %v, and wakes %d", changed(again, first), len(woken))
	}
	run(t, conn, `SET session_replication_role = replica`) // no triggers
	run(t, conn, `UPDATE pacer.campaigns SET send_rate = 7000 WHERE id = 'c20'`)
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'c21'`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas VALUES ('c22', 'q2')`)
	run(t, conn, `UPDATE pacer.quota_windows SET max_units = 6 WHERE quota_id = 'q1'`)
	equal(t, "changes without a revision", changed(loaded(t, p, false), first), nil)
	s := loaded(t, p, true)
	if got := changed(s, first); len(got) != 13 || s.Campaigns["c20"].Rate != delivery.PerSecond(7000) || s.Campaigns["c21"] != nil ||
		s.Campaigns["c22"].Quotas[0] != s.Quotas["q2"] || s.Quotas["q2"] != first.Quotas["q2"] || s.Campaigns["c3"].Quotas[0].Windows[0].Limit != 6 {
		t.Errorf("changed %v: %+v", got, s.Campaigns["c22"])
	}
	<-woken
}

// TestASilentDatabaseIsReported as soon as a load has failed: the first one does not wait until the listener has given up, which takes as
// long again.
func TestASilentDatabaseIsReported(t *testing.T) {
	t.Parallel()
	server, gaveUp := try(net.Listen("tcp", "127.0.0.1:0"))(t), make(chan struct{})
	t.Cleanup(func() {
		<-gaveUp
		_ = server.Close() // all of it has been accepted
	})
	var log journal
	running(t, Options{DSN: "postgres://pacer@" + server.Addr().String() + "/pacer?sslmode=disable", Logger: log.logger()})
	listener := try(server.Accept())(t)
	go func() {
		defer close(gaveUp)
		_, _ = io.Copy(io.Discard, listener) // until the client has had enough of getting no answer
		_ = listener.Close()
	}()
	_ = try(server.Accept())(t).Close() // that of the load
	eventually(t, "it is said", func() bool { return log.count("level=WARN msg=\"catalog cannot be read") == 1 })
	select {
	case <-gaveUp:
		t.Error("the listener had to give up first")
	default:
	}
}
