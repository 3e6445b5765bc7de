package catalog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestNonsenseIsRefused holds the tables, not the commands, to a clear message and a remedy for those who write SQL.
func TestNonsenseIsRefused(t *testing.T) {
	_, conn := fresh(t)
	run(t, conn, `UPDATE pacer.store SET shards = 4`)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('kept')`)
	run(t, conn, `INSERT INTO pacer.quotas (id) SELECT 'q' || g FROM generate_series(1, 16) g`)
	run(t, conn, `INSERT INTO pacer.quotas (id, shard, spend, per) VALUES ('q', 0, 'greedy', null), ('full', 0, 'greedy', null),
('even', 0, 'even', null), ('greedy', 0, 'greedy', null), ('far', 3, 'greedy', null), ('keyed', 0, 'greedy', 'to')`)
	run(t, conn, `UPDATE pacer.quotas SET mode = 'eventual' WHERE id LIKE 'q_%'`) // whatever shards they live in
	run(t, conn, `INSERT INTO pacer.campaign_quotas SELECT 'kept', 'q' || g FROM generate_series(1, 16) g`)
	run(t, conn, `INSERT INTO pacer.quota_windows SELECT 'full', g * interval '1 minute', 1 FROM generate_series(1, 16) g`)
	run(t, conn, `INSERT INTO pacer.quota_windows VALUES ('greedy', '1 day', 68719476737)`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, ramp, active_hours)
VALUES ('rises', 100, '{"start": 1, "add": 1, "every": "1 minute"}', '[{"from": "09:00", "to": "21:00"}]')`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('there', 'https://a.example/')`)
	campaign := func(columns string) string {
		return `INSERT INTO pacer.campaigns (id, ` + columns + `) VALUES ('x', ?)`
	}
	quota := func(columns string) string { return `INSERT INTO pacer.quotas (id, ` + columns + `) VALUES ('x', ?)` }
	destination := func(column string) string {
		return `INSERT INTO pacer.destinations (id, url, ` + column + `) VALUES ('x', 'https://a.example/', ?)`
	}
	between := regexp.MustCompile(`\s\|\s+`)
	for _, c := range []struct {
		statement, column, says string // ? is the value
		values                  string // that are refused, with | between them, spelled as PostgreSQL does
	}{
		{`INSERT INTO pacer.destinations (url, id) VALUES ('https://a.example/', ?)`, "id", "must be an id", `'a b'`},
		{`UPDATE pacer.destinations SET id = ?`, "id", "cannot be changed", `'elsewhere'`},
		{
			`INSERT INTO pacer.destinations (id, url) VALUES ('x', ?)`, "url", "must be an address without a user and a fragment",
			`null | 'ftp://a.example/' | 'https://u:hunter22@a.example/' | 'https://a.example/#x' | 'https://a.example/a b' | 'https://' |
			'https://a.example/' || repeat('x', 2048)`,
		},
		{destination("sink"), "sink", "must be an id", `''`},
		{destination("headers"), "headers", "must be a JSON object", `'[]'`},
		{destination("headers"), "headers", "'a b' must be the name of a header", `'{"a b": "x"}'`},
		{destination("headers"), "headers", "'x-a' must be the name of a header, with a text", `'{"x-a": 1}'`},
		{destination("headers"), "headers", "'x-a' must be one line", `'{"x-a": "b\nc"}'`},
		{destination("headers"), "headers", "'Authorization' is a secret, and must not be in the database", `'{"Authorization": "Bearer hunter22"}'`},
		{destination("headers"), "headers", "'X-Api-Key' is a secret", `'{"X-Api-Key": "hunter22"}'`},
		{
			destination("secrets"), "secrets", "must be references, at most 4", `null | '{whsec_hunter22}' | '{file:a,file:b,file:c,file:d,file:e}' |
			'{file:a,NULL}' | '{""}' | '{"file:a file:b"}' | ARRAY['file:' || repeat('x', 252)]`,
		},
		{destination("max_in_flight"), "max_in_flight", "must not be ?", `-1`},
		{destination("disabled_at"), "disabled_at", "must not be ?", `'infinity'`},
		{destination("disabled_reason"), "disabled_reason", "must not be so long", `repeat('x', 501)`},

		{`INSERT INTO pacer.campaigns (id) VALUES (?)`, "id", "must be an id, not '?'", `'' | 'a b' | 'весна'`},
		{`INSERT INTO pacer.campaigns (id) VALUES (?)`, "id", "must be an id", `E'a\nb' | repeat('x', 257)`},
		{`INSERT INTO pacer.campaigns (id) VALUES (?)`, "id", "stands for jobs without a campaign", `'(unknown)'`},
		{`UPDATE pacer.campaigns SET id = ? WHERE id = 'kept'`, "id", "cannot be changed", `'other'`},
		{campaign("send_rate"), "send_rate", "must not be ?", `-5 | 'NaN' | 'Infinity' | null`},
		{campaign("send_rate"), "send_rate", "must not be ? per 00:00:01", `0.1234567 | 1000001 | 999999.123457`},
		{campaign("send_rate"), "send_rate", "must not be 1000000000000000000000000000000000000000", `1e130000`},
		{campaign("send_per, send_rate"), "send_rate", "must not be 0.5 per 366 days", `'366 days', 0.5`},
		{`UPDATE pacer.campaigns SET send_rate = ?`, "send_rate", "must not be ?", `-1`},
		{campaign("send_per"), "send_per", "must not be ?", `'00:00:00' | '-00:00:01' | '367 days' | '1 mon' | null`},
		{campaign("status"), "status", "must not be '?'", `'asleep'`},
		{campaign("status"), "status", "must not be NULL", `null`},
		{campaign("paused_until"), "paused_until", "does not go with status 'active'", `now()`},
		{`UPDATE pacer.campaigns SET paused_until = ?`, "paused_until", "does not go with status 'active'", `now() + interval '1 hour'`},
		{campaign("status, paused_until"), "paused_until", "must be a point in time", `'paused', 'infinity'`},
		{campaign("overflow"), "overflow", "must not be '?'", `'drop'`},
		{campaign("sink"), "sink", "must be an id, not '?'", `''`},
		{campaign("burst"), "burst", "must not be ?", `-1`},
		{campaign("priority_weight"), "priority_weight", "must not be ?", `0`},
		{campaign("max_in_flight"), "max_in_flight", "must not be ?", `-1`},
		{campaign("expected_total"), "expected_total", "must not be ?", `-1`},
		{campaign("note"), "note", "one line of at most 500 characters", `repeat('x', 501) | E'two\nlines'`},
		{campaign("finish_by"), "finish_by", "finish_by must not be 20", `now() - interval '1 minute'`},
		{campaign("finish_by"), "finish_by", "must not be ?", `'infinity'`},
		{campaign("starts_at, finish_by"), "finish_by", "must be later than starts_at", `now() + interval '2 hours', now() + interval '1 hour'`},
		{campaign("ends_at, finish_by"), "finish_by", "not later than ends_at", `now() + interval '1 hour', now() + interval '2 hours'`},
		{campaign("starts_at, ends_at"), "ends_at", "later than starts_at", `'2026-01-02', '2026-01-01'`},
		{campaign("ends_at"), "ends_at", "must not be ?", `'infinity'`},
		{campaign("job_ttl"), "job_ttl", "must not be ?", `'-00:00:01'`},
		{
			campaign("ramp"), "ramp", "must not be ?", `'5' | '{"from": 10}' | '{"add": 1, "start": 1}' | '{"add": 1, "every": "1 minute"}' |
			'{"every": "1 minute", "start": 10}' | '{"add": 1, "every": "1 minute", "start": 10, "factor": 2}' |
			'{"add": 1, "every": "1 minute", "start": "10"}' | '{"add": 1, "every": "1 minute", "start": 0}' |
			'{"add": 1, "every": "1 minute", "start": 0.1234567}' | '{"add": -1, "every": "1 minute", "start": 1}' |
			'{"every": "1 minute", "start": 1, "factor": 1}' | '{"every": "1 minute", "start": 1, "factor": 101}' |
			'{"add": 1, "every": 60, "start": 1}' | '{"add": 1, "every": "1 month", "start": 1}' | '{"add": 1, "every": "0 seconds", "start": 1}' |
			'{"add": 1, "every": "99999999 weeks", "start": 1}'`,
		},
		{campaign("send_rate, ramp"), "ramp", "more than 10000 steps from 1", `100, '{"start": 1, "add": 0.009, "every": "1 minute"}'`},
		{campaign("send_rate, ramp"), "ramp", "more than 10000 steps", `100, '{"start": 1, "factor": 1.0001, "every": "1 minute"}'`},
		{campaign("send_rate, send_per, ramp"), "ramp", "below one unit", `100, '366 days', '{"start": 0.5, "add": 1, "every": "1 day"}'`},
		{`UPDATE pacer.campaigns SET send_rate = ? WHERE id = 'rises'`, "ramp", "more than 10000 steps from 1 to the send_rate, ?", `10002`},
		{`UPDATE pacer.campaigns SET ramp_since = ? WHERE id = 'rises'`, "ramp_since", "must not be ?", `'infinity'`},
		{
			campaign("active_hours"), "active_hours", "must not be ?", `'{"mon": "09:00-18:00"}' | '[7]' | '[{"from": "09:00"}]' |
			'[{"from": "09:00", "until": "21:00"}]' | '[{"to": "21:00", "from": "9:00"}]' | '[{"to": "21:00", "from": "24:00"}]' |
			'[{"to": "24:01", "from": "09:00"}]' | '[{"to": "21:00", "days": "mon", "from": "09:00"}]' |
			'[{"to": "21:00", "days": [], "from": "09:00"}]' | '[{"to": "21:00", "days": ["monday"], "from": "09:00"}]'`,
		},
		{
			campaign("active_hours"), "active_hours", `must not be [{"to": "21:00", "from": "09:00"}`,
			`(SELECT jsonb_agg('{"from": "09:00", "to": "21:00"}'::jsonb) FROM generate_series(1, 33))`,
		},
		{campaign("time_zone"), "time_zone", "must not be '?'", `'Mars/Olympus'`},
		{`INSERT INTO pacer.campaigns (active_hours, id, time_zone) SELECT active_hours, 'x', ? FROM pacer.campaigns WHERE id = 'rises'`,
			"time_zone", "must not be '?'", `'MSK' | 'europe/moscow'`},
		{`UPDATE pacer.campaigns SET time_zone = ? WHERE id = 'rises'`, "time_zone", "must not be '?'", `'EST5EDT4'`},
		{`UPDATE pacer.campaigns SET time_zone = ? WHERE id = 'rises'`, "time_zone_missing", "is needed", `'recipient'`},
		{campaign("time_zone_missing"), "time_zone_missing", "must not be '?'", `'Mars/Olympus' | 'recipient'`},
		{campaign("avoid_minutes"), "avoid_minutes", "must not be '?'", `'60' | '0,' | '{0,15}'`},
		{campaign("avoid_minutes"), "avoid_minutes", "leave no minute", `'2,6,10,14,18,22,26,30,34,38,42,46,50,54,58'`},
		{campaign("avoid_minutes, time_zone"), "time_zone", "must not be 'MSK'", `'0', 'MSK'`},
		{`INSERT INTO pacer.campaign_quotas SELECT id, ? FROM pacer.campaigns`, "campaign_id", "campaign 'kept' has 16 quotas already", `'q'`},

		{`INSERT INTO pacer.quotas (id) VALUES (?)`, "id", "must be an id", `'a b'`},
		{`UPDATE pacer.quotas SET id = ? WHERE id = 'q'`, "id", "cannot be changed", `'other'`},
		{quota("per"), "per", "must not be '?'", `'A b'`},
		{quota("max_wait"), "per", "max_wait, keyless and count are for keyed quotas", `'1 hour'`},
		{quota("per, mode"), "per", "a keyed quota has mode strict", `'to', 'shadow'`},
		{quota("per, on_store_failure"), "on_store_failure", "a daemon has no share of a key", `'to', 'local-share'`},
		{quota("per, max_wait"), "max_wait", "must not be -00:00:01", `'to', '-1 second'`},
		{quota("per, keyless"), "keyless", "must not be 'maybe'", `'to', 'maybe'`},
		{`UPDATE pacer.quotas SET per = ? WHERE id = 'keyed'`, "per", "is fixed when the quota is created", `'other'`},
		{`INSERT INTO pacer.quota_windows VALUES ('keyed', '1 second', ?)`, "max_units", "must not be ?", `0 | 1000000`},
		{`INSERT INTO pacer.quota_keys (quota_id, key) VALUES ('keyed', ?)`, "key", "must have 1 to 256 bytes", `repeat('x', 257)`},
		{`INSERT INTO pacer.quota_keys (quota_id, key, windows) VALUES ('keyed', 'a', ?)`, "windows", "must not be '?'", `'0/1s'`},
		{`INSERT INTO pacer.quota_keys (quota_id, key) VALUES (?, 'a')`, "quota_id", "is not keyed", `'q'`},
		{quota("mode"), "mode", "must not be '?'", `'loose'`},
		{quota("spend"), "spend", "must not be '?'", `'fast'`},
		{quota("on_store_failure"), "on_store_failure", "must not be '?'", `'ignore'`},
		{quota("shard"), "shard", "must not be ?", `-1`},
		{quota("shard"), "shard", "must not be ?: the store has 4 shards, from 0", `4`},
		{`UPDATE pacer.quotas SET shard = ? WHERE id = 'q'`, "shard", "fixed when the quota is created", `1`},
		{quota("rollout"), "rollout", "must not be ?", `101 | -1 | null`},
		{quota("unit"), "unit", "must not be '?'", `'calls'`},
		{quota("unit"), "unit", "must not be '?' in mode 'strict'", `'bytes'`},
		{`INSERT INTO pacer.quota_windows VALUES ('q', ?, 1)`, "span", "must not be ?", `'00:00:00.0005' | '1 mon' | '400 days'`},
		{`INSERT INTO pacer.quota_windows VALUES ('q', '1 minute', ?)`, "max_units", "must not be ?", `-1 | 1000000000000001`},
		{`INSERT INTO pacer.quota_windows VALUES ('q', '1 minute', ?, 'log')`, "max_units", "must not be ?", `10001`},
		{`INSERT INTO pacer.quota_windows VALUES ('q', '1 minute', 1, ?)`, "algorithm", "must not be '?'", `'bucket'`},
		{`INSERT INTO pacer.quota_windows VALUES ('q', '1 day', 1, 'sliding', ?)`, "anchor", "does not go with algorithm 'sliding'", `'day'`},
		{
			`INSERT INTO pacer.quota_windows VALUES ('q', '1 day', 1, 'fixed', ?)`, "anchor", "must not be '?'",
			`'noon' | '@UTC' | 'day@Mars/Olympus' | 'day@' | 'day@posix/UTC' | 'day@MSK-3' | 'day@recipient'`,
		},
		{`INSERT INTO pacer.quota_windows VALUES ('q', '1 day', 1, 'fixed', ?)`, "anchor", "must not be 'xxx", `repeat('x', 65)`},
		{`INSERT INTO pacer.quota_windows VALUES ('q', ?, 1, 'fixed', 'day')`, "span", "must not be ?", `'01:00:00'`},
		{`INSERT INTO pacer.quota_windows VALUES ('q', ?, 1, 'fixed', 'month@Europe/Moscow')`, "span", "must not be ?", `'30 days'`},
		{`INSERT INTO pacer.quota_windows VALUES ('even', '1 day', ?)`, "max_units", "quota 'even' is spent evenly", `68719476737`},
		{`INSERT INTO pacer.quota_windows VALUES ('full', ?, 1)`, "quota_id", "16 windows already", `'1 hour 1 second'`},
		{`UPDATE pacer.quotas SET spend = ? WHERE id = 'greedy'`, "max_units", "must not be 68719476737: quota 'greedy'", `'even'`},
		{`UPDATE pacer.store SET shards = ?`, "shards", "must not be ?", `0 | 1025`},
		{`UPDATE pacer.store SET shards = ?`, "shards", "must not be ?: there are quotas on shard 3", `3`},
	} {
		for _, value := range between.Split(c.values, -1) {
			statement, shown := strings.ReplaceAll(c.statement, "?", value), strings.Trim(value, "'")
			says := strings.ReplaceAll(c.says, "?", shown[:min(len(shown), 50)])
			_, err := conn.Exec(t.Context(), statement)
			var refused *pgconn.PgError
			switch {
			case !errors.As(err, &refused):
				t.Errorf("%s: %v", statement, err)
			case refused.Code != "23514" || refused.ColumnName != c.column || !strings.Contains(refused.Message, says) ||
				refused.Hint == "" || len(refused.Message) > 300:
				t.Errorf("%s\n: %s %s: %s (%s)\nwant column %s, %q", statement, refused.Code, refused.ColumnName, refused.Message,
					refused.Hint, c.column, says)
			}
		}
	}
}

// TestSenseIsAccepted is the other side: what must not be refused.
func TestSenseIsAccepted(t *testing.T) {
	_, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('spring', 500)`)
	run(t, conn, `UPDATE pacer.campaigns SET send_rate = 500 WHERE id = 'spring'`)
	for i, rate := range []string{"0, '1 second'", "2.5, '1 second'", "150, '1 minute'", "1, '1 hour'", "0.000001, '1 second'",
		"250000, '1 second'", "1000000, '1 second'", "1, '366 days'", "2.31, '1 second'", "31622400, '366 days'"} {
		run(t, conn, fmt.Sprintf(`INSERT INTO pacer.campaigns (id, send_rate, send_per) VALUES ('c%d', %s)`, i, rate))
	}
	run(t, conn, `INSERT INTO pacer.campaigns (id, time_zone, starts_at, active_hours, ramp, job_ttl, sink, expected_total)
VALUES (repeat('~', 256), 'Europe/Moscow', now(), '[{"from": "22:00", "to": "06:00"}]', '{"start": 0.5, "factor": 1.5, "every": "90 seconds"}',
'3 days', 'receiver', 7)`)
	for i, every := range []string{"1s", "30 m", "2 hours", "1 day", "52 weeks"} {
		run(t, conn, fmt.Sprintf(`INSERT INTO pacer.campaigns (id, send_rate, send_per, ramp)
VALUES ('ramp%d', 10000, '1 day', '{"start": 0.01, "add": 1, "every": "%s"}')`, i, every))
	}
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('smev')`)
	run(t, conn, `INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('smev', '60 s', 300), ('smev', '3600 s', 15750),
('smev', '86400 s', 300000), ('smev', '604800 s', 1500000), ('smev', '2592000 s', 6000000), ('smev', '1 ms', 0)`)
	run(t, conn, `INSERT INTO pacer.quotas (id, mode, unit, rollout) VALUES ('traffic', 'eventual', 'bytes', 0)`)
	run(t, conn, `INSERT INTO pacer.quota_windows VALUES ('traffic', '60 s', 1, 'fixed', 'minute'),
('traffic', '60 min', 1, 'fixed', 'hour@Asia/Kolkata'), ('traffic', '24 hours', 1, 'fixed', 'day@Europe/Moscow'),
('traffic', '7 days', 1, 'fixed', 'week@UTC'), ('traffic', '31 days', 1, 'fixed', 'month@America/New_York'),
('traffic', '2 days', 1, 'fixed', ''), ('traffic', '10 s', 1000, 'log', null)`)
	run(t, conn, `BEGIN`) // the words and the windows of a quota, in any order
	run(t, conn, `INSERT INTO pacer.quota_windows VALUES ('smev', '2 days', 68719476737)`)
	run(t, conn, `UPDATE pacer.quotas SET spend = 'even' WHERE id = 'smev'`)
	run(t, conn, `UPDATE pacer.quota_windows SET max_units = max_units - 1 WHERE max_units = 68719476737`)
	run(t, conn, `COMMIT`)
	equal(t, "rate", try(queryCampaigns(t.Context(), conn, `WHERE c.id = 'c2'`))(t)[0].Rate, "150/1m")
}

// TestEveryChangeIsKept: who, when, old and new; nothing for a statement that changed nothing.
func TestEveryChangeIsKept(t *testing.T) {
	dsn, conn := fresh(t)
	const (
		count = `SELECT count(*) FROM pacer.campaign_changes`
		last  = `SELECT concat_ws(' ', who, application, relation, operation, campaign_id, quota_id, old->>'send_rate', new->>'send_rate')
FROM pacer.campaign_changes ORDER BY change DESC LIMIT 1`
	)
	role, _ := role(t, conn, dsn, "ops")
	t.Cleanup(func() { run(t, conn, `RESET ROLE`) }) // before it is dropped
	run(t, conn, `SET application_name = 'psql'`)
	run(t, conn, `GRANT USAGE ON SCHEMA pacer TO `+role)
	run(t, conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON pacer.campaigns, pacer.quotas, pacer.quota_windows, pacer.campaign_quotas TO `+role)
	run(t, conn, `GRANT SELECT ON pacer.campaign_changes TO `+role)
	run(t, conn, `SET ROLE `+role) // may change the catalog, and neither forge nor skip its record
	for _, step := range []struct {
		statement, record string
		records           int
	}{
		{`INSERT INTO pacer.campaigns (id, send_rate) VALUES ('spring', 500)`, "campaigns insert spring 500", 1},
		{`UPDATE pacer.campaigns SET send_rate = 500 WHERE id = 'spring'`, "campaigns insert spring 500", 0},
		{`UPDATE pacer.campaigns SET send_rate = 50.5 WHERE id = 'spring'`, "campaigns update spring 500 50.5", 1},
		{`INSERT INTO pacer.quotas (id) VALUES ('q')`, "quotas insert q", 1},
		{`INSERT INTO pacer.quota_windows VALUES ('q', '1 minute', 300)`, "quota_windows insert q", 1},
		{`INSERT INTO pacer.campaign_quotas VALUES ('spring', 'q')`, "campaign_quotas insert spring q", 1},
		{`UPDATE pacer.quota_windows SET max_units = 300`, "campaign_quotas insert spring q", 0},
		{`UPDATE pacer.quota_windows SET max_units = 301`, "quota_windows update q", 1},
		{`SELECT pacer.record_cancel('spring', '{u-1,u-2}')`, "jobs cancel spring", 1},
		{`DELETE FROM pacer.campaign_quotas`, "campaign_quotas delete spring q", 1},
		{`DELETE FROM pacer.campaigns`, "campaigns delete spring 50.5", 1},
	} {
		before := value[int](t, conn, count)
		run(t, conn, step.statement)
		equal(t, "records of "+step.statement, value[int](t, conn, count)-before, step.records)
		equal(t, "the last one", value[string](t, conn, last), strings.Trim(role, `"`)+" psql "+step.record)
	}
	forbidden := func(statement string) {
		t.Helper()
		var refused *pgconn.PgError
		if _, err := conn.Exec(t.Context(), statement); !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s: %v", statement, err)
		}
	}
	forbidden(`DELETE FROM pacer.campaign_changes`)
	run(t, conn, `RESET ROLE`)
	run(t, conn, `REVOKE UPDATE ON pacer.campaigns FROM `+role)
	run(t, conn, `SET ROLE `+role)
	forbidden(`SELECT pacer.record_cancel('spring', '{u-3}')`)
}

// TestUnchangedRowsKeepTheirRevision: a no-op neither bumps nor announces.
func TestUnchangedRowsKeepTheirRevision(t *testing.T) {
	_, conn := fresh(t)
	const revision = `SELECT revision FROM pacer.campaigns WHERE id = 'spring'`
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('spring', 500)`)
	run(t, conn, `LISTEN `+channel)
	first := value[int64](t, conn, revision)
	run(t, conn, setRate, "spring", 500)
	run(t, conn, `UPDATE pacer.campaigns SET updated_at = now() - interval '1 day'`)
	equal(t, "revision", value[int64](t, conn, revision), first)
	run(t, conn, setRate, "spring", 501)
	if value[int64](t, conn, revision) <= first {
		t.Error("the rate changed but not the revision")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	equal(t, "payload", try(conn.WaitForNotification(ctx))(t).Payload, "campaigns spring")
	run(t, conn, `SELECT 1`)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if n, err := conn.WaitForNotification(short); err == nil {
		t.Errorf("a second notification: %+v", n)
	}
}

// TestRowsAreNumberedTogether: what one transaction changes gets revisions in the order of commits, and is recorded once, however many rows it
// has, and also where it changes a row twice, or another trigger does.
func TestRowsAreNumberedTogether(t *testing.T) {
	dsn, early := fresh(t)
	late := connected(t, dsn)
	run(t, early, `SET lock_timeout = '5s'`)
	run(t, late, `CREATE TEMP TABLE others (id text)`)
	for table, c := range map[string]struct{ insert, change, recorded string }{
		"campaigns":    {`(id) SELECT $1 || g`, `burst = burst + 1`, "campaign_id"},
		"quotas":       {`(id) SELECT $1 || g`, `mode = 'shadow'`, "quota_id"},
		"destinations": {`(id, url) SELECT $1 || g, 'https://a.example/'`, `max_in_flight = max_in_flight + 1`, "destination_id"},
	} {
		insert := `INSERT INTO pacer.` + table + ` ` + c.insert + ` FROM generate_series(1, 20) g`
		update := `UPDATE pacer.` + table + ` SET `
		run(t, late, `CREATE OR REPLACE FUNCTION pg_temp.change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN `+update+c.change+` WHERE id = NEW.id; RETURN NEW; END $$`)
		run(t, late, `CREATE OR REPLACE TRIGGER change BEFORE INSERT ON others FOR EACH ROW EXECUTE FUNCTION pg_temp.change()`)
		run(t, early, insert, "early-")
		run(t, late, `BEGIN`)
		run(t, late, insert, "late-")
		run(t, late, update+c.change+` WHERE id LIKE 'late-%' AND id < 'late-15'`)
		run(t, late, update+`revision = 1`)
		if table != "quotas" { // whose changes take turns
			run(t, early, insert, "between-")
		}
		seen := value[int64](t, early, `SELECT max(revision) FROM pacer.`+table)
		run(t, late, `INSERT INTO others VALUES ('late-3'), ('early-3')`)
		run(t, late, `COMMIT`)
		count := func(what string, want int, args ...any) {
			t.Helper()
			equal(t, table+" "+what, value[int](t, early, `SELECT count(`+what, args...), want)
		}
		count(`*) FROM pacer.`+table+` WHERE revision > $1`, 40, seen) // which a reader of revisions finds
		count(`*) - count(DISTINCT revision) FROM pacer.`+table, 0)
		count(`*) FROM pacer.`+table+` WHERE revision > (SELECT last_value FROM pacer.revisions)`, 0)
		for id, records := range map[string]int{"late-3": 2, "late-10": 2, "late-9": 1} {
			count(`*) FROM pacer.campaign_changes WHERE `+c.recorded+` = $1`, records, id)
		}
	}
}
