package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestNonsenseIsRefused holds the tables, not the commands, to a clear message and a remedy for those who write SQL.
func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('q')`)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('kept')`)
	for i := range 16 {
		run(t, conn, fmt.Sprintf(`INSERT INTO pacer.quotas (id) VALUES ('q%d')`, i))
		run(t, conn, fmt.Sprintf(`INSERT INTO pacer.campaign_quotas VALUES ('kept', 'q%d')`, i))
	}
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('full')`)
	run(t, conn, `INSERT INTO pacer.quota_windows SELECT 'full', g * interval '1 minute', 1 FROM generate_series(1, 16) g`)
	campaign := func(column, value string) string {
		return fmt.Sprintf(`INSERT INTO pacer.campaigns (id, %s) VALUES ('x', %s)`, column, value)
	}
	quota := func(column, value string) string {
		return fmt.Sprintf(`INSERT INTO pacer.quotas (id, %s) VALUES ('x', %s)`, column, value)
	}
	extended := func(span, limit, algorithm, anchor string) string {
		return fmt.Sprintf(`INSERT INTO pacer.quota_windows VALUES ('q', '%s', %s, '%s', '%s')`, span, limit, algorithm, anchor)
	}
	run(t, conn, `INSERT INTO pacer.quotas (id, spend) VALUES ('even', 'even')`)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('greedy')`)
	run(t, conn, `INSERT INTO pacer.quota_windows VALUES ('greedy', '1 day', 68719476737)`)
	run(t, conn, `INSERT INTO pacer.quotas (id, per) VALUES ('keyed', 'to')`)
	run(t, conn, `UPDATE pacer.store SET shards = 4`)
	run(t, conn, `INSERT INTO pacer.quotas (id, shard) VALUES ('far', 3)`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, ramp, active_hours)
VALUES ('rises', 100, '{"start": 1, "add": 1, "every": "1 minute"}', '[{"from": "09:00", "to": "21:00"}]')`)
	window := func(span, limit string) string {
		return fmt.Sprintf(`INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('q', '%s', %s)`, span, limit)
	}
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('there', 'https://a.example/')`)
	destination := func(column, value string) string {
		return fmt.Sprintf(`INSERT INTO pacer.destinations (id, url, %s) VALUES ('x', 'https://a.example/', %s)`, column, value)
	}
	address := func(url string) string {
		return fmt.Sprintf(`INSERT INTO pacer.destinations (id, url) VALUES ('x', %s)`, url)
	}
	for _, c := range []struct{ statement, column, message string }{
		{`INSERT INTO pacer.destinations (id, url) VALUES ('a b', 'https://a.example/')`, "id", "must be an id"},
		{`UPDATE pacer.destinations SET id = 'elsewhere'`, "id", "cannot be changed"},
		{address("null"), "url", "must be an address without a user and a fragment"},
		{address("'ftp://a.example/'"), "url", "must be an address"},
		{address("'https://u:hunter22@a.example/'"), "url", "must be an address without a user"},
		{address("'https://a.example/#x'"), "url", "must be an address"},
		{address("'https://a.example/a b'"), "url", "must be an address"},
		{address("'https://'"), "url", "must be an address"},
		{address("'https://a.example/' || repeat('x', 2048)"), "url", "must be an address"},
		{destination("sink", "''"), "sink", "must be an id"},
		{destination("headers", "'[]'"), "headers", "must be a JSON object"},
		{destination("headers", `'{"a b": "x"}'`), "headers", "'a b' must be the name of a header"},
		{destination("headers", `'{"x-a": 1}'`), "headers", "'x-a' must be the name of a header, with a text"},
		{destination("headers", `'{"x-a": "b\nc"}'`), "headers", "'x-a' must be one line"},
		{destination("headers", `'{"Authorization": "Bearer hunter22"}'`), "headers", "'Authorization' is a secret, and must not be in the database"},
		{destination("headers", `'{"X-Api-Key": "hunter22"}'`), "headers", "'X-Api-Key' is a secret"},
		{destination("secrets", "'{whsec_hunter22}'"), "secrets", "must be references"},
		{destination("secrets", "'{file:a,file:b,file:c,file:d,file:e}'"), "secrets", "at most 4"},
		{destination("secrets", "'{file:a,NULL}'"), "secrets", "must be references"},
		{destination("secrets", `'{""}'`), "secrets", "must be references"},
		{destination("secrets", `'{"file:a file:b"}'`), "secrets", "must be references"},
		{destination("secrets", "ARRAY['file:' || repeat('x', 252)]"), "secrets", "must be references"},
		{destination("secrets", "null"), "secrets", "must be references"},
		{destination("max_in_flight", "-1"), "max_in_flight", "must not be -1"},
		{destination("disabled_at", "'infinity'"), "disabled_at", "must not be infinity"},
		{destination("disabled_reason", "repeat('x', 501)"), "disabled_reason", "must not be so long"},
		{campaign("send_rate", "-5"), "send_rate", "must not be -5"},
		{campaign("send_rate", "'NaN'"), "send_rate", "must not be NaN"},
		{campaign("send_rate", "'Infinity'"), "send_rate", "must not be Infinity"},
		{campaign("send_rate", "null"), "send_rate", "must not be null"},
		{campaign("send_rate", "0.1234567"), "send_rate", "must not be 0.1234567 per 00:00:01"},
		{campaign("send_rate", "1000001"), "send_rate", "must not be 1000001 per 00:00:01"},
		{campaign("send_rate", "1e130000"), "send_rate", "must not be 1000000000000000000000000000000000000000"},
		{campaign("send_rate", "999999.123457"), "send_rate", "must not be 999999.123457 per 00:00:01"},
		{campaign("send_per, send_rate", "'366 days', 0.5"), "send_rate", "must not be 0.5 per 366 days"},
		{campaign("send_per", "'0'"), "send_per", "must not be 00:00:00"},
		{campaign("send_per", "'-1 second'"), "send_per", "must not be -00:00:01"},
		{campaign("send_per", "'367 days'"), "send_per", "must not be 367 days"},
		{campaign("send_per", "'1 month'"), "send_per", "must not be 1 mon"},
		{campaign("send_per", "null"), "send_per", "must not be null"},
		{campaign("status", "'asleep'"), "status", "must not be 'asleep'"},
		{campaign("status", "null"), "status", "must not be NULL"},
		{campaign("paused_until", "now()"), "paused_until", "does not go with status 'active'"},
		{`UPDATE pacer.campaigns SET paused_until = now() + interval '1 hour'`, "paused_until", "does not go with status 'active'"},
		{campaign("status, paused_until", "'paused', 'infinity'"), "paused_until", "must be a point in time"},
		{campaign("overflow", "'drop'"), "overflow", "must not be 'drop'"},
		{campaign("sink", "''"), "sink", "must be an id, not ''"},
		{campaign("burst", "-1"), "burst", "must not be -1"},
		{campaign("priority_weight", "0"), "priority_weight", "must not be 0"},
		{campaign("max_in_flight", "-1"), "max_in_flight", "must not be -1"},
		{campaign("expected_total", "-1"), "expected_total", "must not be -1"},
		{campaign("note", "repeat('x', 501)"), "note", "one line of at most 500 characters"},
		{campaign("note", `E'two\nlines'`), "note", "one line of at most 500 characters"},
		{campaign("finish_by", "now() - interval '1 minute'"), "finish_by", "finish_by must not be 20"},
		{campaign("finish_by", "'infinity'"), "finish_by", "must not be infinity"},
		{campaign("starts_at, finish_by", "now() + interval '2 hours', now() + interval '1 hour'"), "finish_by", "must be later than starts_at"},
		{campaign("ends_at, finish_by", "now() + interval '1 hour', now() + interval '2 hours'"), "finish_by", "not later than ends_at"},
		{campaign("job_ttl", "'-1 second'"), "job_ttl", "must not be -00:00:01"},
		{campaign("time_zone", "'Mars/Olympus'"), "time_zone", "must not be 'Mars/Olympus'"},
		{campaign("ramp", "'5'"), "ramp", "must not be 5"},
		{campaign("ramp", `'{"from": 10}'`), "ramp", `must not be {"from": 10}`},
		{campaign("ramp", `'{"start": 10, "every": "1 minute"}'`), "ramp", `must not be {"every": "1 minute", "start": 10}`},
		{campaign("ramp", `'{"start": 10, "add": 1, "factor": 2, "every": "1 minute"}'`), "ramp", `must not be {"add": 1, "every": "1 minute", "start":`},
		{campaign("ramp", `'{"add": 1, "every": "1 minute"}'`), "ramp", `must not be {"add": 1, "every": "1 minute"}`},
		{campaign("ramp", `'{"start": "10", "add": 1, "every": "1 minute"}'`), "ramp", `must not be {"add": 1, "every": "1 minute", "start":`},
		{campaign("ramp", `'{"start": 0, "add": 1, "every": "1 minute"}'`), "ramp", `must not be {"add": 1, "every": "1 minute", "start":`},
		{campaign("ramp", `'{"start": 0.1234567, "add": 1, "every": "1 minute"}'`), "ramp", `must not be {"add": 1, "every": "1 minute", "start":`},
		{campaign("ramp", `'{"start": 1, "add": -1, "every": "1 minute"}'`), "ramp", `must not be {"add": -1, "every": "1 minute", "start"`},
		{campaign("ramp", `'{"start": 1, "factor": 1, "every": "1 minute"}'`), "ramp", `must not be {"every": "1 minute", "start": 1, "facto`},
		{campaign("ramp", `'{"start": 1, "factor": 101, "every": "1 minute"}'`), "ramp", `must not be {"every": "1 minute", "start": 1, "facto`},
		{campaign("ramp", `'{"start": 1, "add": 1}'`), "ramp", `must not be {"add": 1, "start": 1}`},
		{campaign("ramp", `'{"start": 1, "add": 1, "every": 60}'`), "ramp", `must not be {"add": 1, "every": 60, "start": 1}`},
		{campaign("ramp", `'{"start": 1, "add": 1, "every": "1 month"}'`), "ramp", `must not be {"add": 1, "every": "1 month", "start":`},
		{campaign("ramp", `'{"start": 1, "add": 1, "every": "0 seconds"}'`), "ramp", `must not be {"add": 1, "every": "0 seconds", "start"`},
		{campaign("ramp", `'{"start": 1, "add": 1, "every": "99999999 weeks"}'`), "ramp", `must not be {"add": 1, "every": "99999999 weeks", "s`},
		{campaign("send_rate, ramp", `100, '{"start": 1, "add": 0.009, "every": "1 minute"}'`), "ramp", "more than 10000 steps from 1"},
		{campaign("send_rate, ramp", `100, '{"start": 1, "factor": 1.0001, "every": "1 minute"}'`), "ramp", "more than 10000 steps"},
		{campaign("send_rate, send_per, ramp", `100, '366 days', '{"start": 0.5, "add": 1, "every": "1 day"}'`), "ramp", "below one unit"},
		{`UPDATE pacer.campaigns SET send_rate = 10002 WHERE id = 'rises'`, "ramp", "more than 10000 steps from 1 to the send_rate, 10002"},
		{`UPDATE pacer.campaigns SET ramp_since = 'infinity' WHERE id = 'rises'`, "ramp_since", "must not be infinity"},
		{campaign("active_hours", `'{"mon": "09:00-18:00"}'`), "active_hours", `must not be {"mon": "09:00-18:00"}`},
		{campaign("active_hours", `'[7]'`), "active_hours", "must not be [7]"},
		{campaign("active_hours", `'[{"from": "09:00", "until": "21:00"}]'`), "active_hours", `must not be [{"from": "09:00", "until": "21:00"}]`},
		{campaign("active_hours", `'[{"from": "9:00", "to": "21:00"}]'`), "active_hours", `must not be [{"to": "21:00", "from": "9:00"}]`},
		{campaign("active_hours", `'[{"from": "24:00", "to": "21:00"}]'`), "active_hours", `must not be [{"to": "21:00", "from": "24:00"}]`},
		{campaign("active_hours", `'[{"from": "09:00"}]'`), "active_hours", `must not be [{"from": "09:00"}]`},
		{campaign("active_hours", `'[{"from": "09:00", "to": "24:01"}]'`), "active_hours", `must not be [{"to": "24:01", "from": "09:00"}]`},
		{campaign("active_hours", `'[{"days": "mon", "from": "09:00", "to": "21:00"}]'`), "active_hours", `must not be [{"to": "21:00", "days": "mon", "from":`},
		{campaign("active_hours", `'[{"days": [], "from": "09:00", "to": "21:00"}]'`), "active_hours", `must not be [{"to": "21:00", "days": [], "from": "09`},
		{campaign("active_hours", `'[{"days": ["monday"], "from": "09:00", "to": "21:00"}]'`), "active_hours", `must not be [{"to": "21:00", "days": ["monday"], "fr`},
		{
			campaign("active_hours", `(SELECT jsonb_agg('{"from": "09:00", "to": "21:00"}'::jsonb) FROM generate_series(1, 33))`),
			"active_hours", `must not be [{"to": "21:00", "from": "09:00"}`,
		},
		{campaign("time_zone, active_hours", `'MSK', '[{"from": "09:00", "to": "21:00"}]'`), "time_zone", "must not be 'MSK'"},
		{campaign("time_zone, active_hours", `'europe/moscow', '[{"from": "09:00", "to": "21:00"}]'`), "time_zone", "must not be 'europe/moscow'"},
		{`UPDATE pacer.campaigns SET time_zone = 'EST5EDT4' WHERE id = 'rises'`, "time_zone", "must not be 'EST5EDT4'"},
		{campaign("time_zone, active_hours", `'recipient', '[{"from": "09:00", "to": "21:00"}]'`), "time_zone_missing", "is needed"},
		{campaign("time_zone_missing", `'Mars/Olympus'`), "time_zone_missing", "must not be 'Mars/Olympus'"},
		{campaign("time_zone_missing", `'recipient'`), "time_zone_missing", "must not be 'recipient'"},
		{campaign("avoid_minutes", `'60'`), "avoid_minutes", "must not be '60'"},
		{campaign("avoid_minutes", `'0,'`), "avoid_minutes", "must not be '0,'"},
		{campaign("avoid_minutes", `'{0,15}'`), "avoid_minutes", "must not be '{0,15}'"},
		{campaign("avoid_minutes", `'2,6,10,14,18,22,26,30,34,38,42,46,50,54,58'`), "avoid_minutes", "leave no minute"},
		{campaign("time_zone, avoid_minutes", `'MSK', '0'`), "time_zone", "must not be 'MSK'"},
		{extended("1 day", "1", "fixed", "day@recipient"), "anchor", "must not be 'day@recipient'"},
		{campaign("starts_at, ends_at", "'2026-01-02', '2026-01-01'"), "ends_at", "later than starts_at"},
		{campaign("ends_at", "'infinity'"), "ends_at", "must not be infinity"},
		{`INSERT INTO pacer.campaigns (id) VALUES ('')`, "id", "must be an id, not ''"},
		{`INSERT INTO pacer.campaigns (id) VALUES ('a b')`, "id", "must be an id, not 'a b'"},
		{"INSERT INTO pacer.campaigns (id) VALUES (E'a\nb')", "id", "must be an id"},
		{`INSERT INTO pacer.campaigns (id) VALUES ('(unknown)')`, "id", "stands for jobs without a campaign"},
		{`INSERT INTO pacer.campaigns (id) VALUES ('весна')`, "id", "must be an id"},
		{`INSERT INTO pacer.campaigns (id) VALUES ('` + strings.Repeat("x", 257) + `')`, "id", "must be an id"},
		{`UPDATE pacer.campaigns SET id = 'other' WHERE id = 'kept'`, "id", "cannot be changed"},
		{`UPDATE pacer.campaigns SET send_rate = -1`, "send_rate", "must not be -1"},
		{`INSERT INTO pacer.campaign_quotas VALUES ('kept', 'q')`, "campaign_id", "16 quotas already"},
		{`INSERT INTO pacer.quotas (id) VALUES ('a b')`, "id", "must be an id"},
		{quota("per", "'A b'"), "per", "must not be 'A b'"},
		{quota("max_wait", "'1 hour'"), "per", "max_wait, keyless and count are for keyed quotas"},
		{quota("per, mode", "'to', 'shadow'"), "per", "a keyed quota has mode strict"},
		{quota("per, on_store_failure", "'to', 'local-share'"), "on_store_failure", "a daemon has no share of a key"},
		{quota("per, max_wait", "'to', '-1 second'"), "max_wait", "must not be -00:00:01"},
		{quota("per, keyless", "'to', 'maybe'"), "keyless", "must not be 'maybe'"},
		{`UPDATE pacer.quotas SET per = 'other' WHERE id = 'keyed'`, "per", "is fixed when the quota is created"},
		{`INSERT INTO pacer.quota_windows VALUES ('keyed', '1 second', 0)`, "max_units", "must not be 0"},
		{`INSERT INTO pacer.quota_windows VALUES ('keyed', '1 second', 1000000)`, "max_units", "must not be 1000000"},
		{`INSERT INTO pacer.quota_keys (quota_id, key) VALUES ('keyed', repeat('x', 257))`, "key", "must have 1 to 256 bytes"},
		{`INSERT INTO pacer.quota_keys (quota_id, key, windows) VALUES ('keyed', 'a', '0/1s')`, "windows", "must not be '0/1s'"},
		{`INSERT INTO pacer.quota_keys (quota_id, key) VALUES ('q', 'a')`, "quota_id", "is not keyed"},
		{`INSERT INTO pacer.quotas (id, mode) VALUES ('x', 'loose')`, "mode", "must not be 'loose'"},
		{`INSERT INTO pacer.quotas (id, spend) VALUES ('x', 'fast')`, "spend", "must not be 'fast'"},
		{`INSERT INTO pacer.quotas (id, on_store_failure) VALUES ('x', 'ignore')`, "on_store_failure", "must not be 'ignore'"},
		{`INSERT INTO pacer.quotas (id, shard) VALUES ('x', -1)`, "shard", "must not be -1"},
		{`UPDATE pacer.quotas SET shard = 1 WHERE id = 'q'`, "shard", "fixed when the quota is created"},
		{`UPDATE pacer.quotas SET id = 'other' WHERE id = 'q'`, "id", "cannot be changed"},
		{window("0.5 milliseconds", "1"), "span", "must not be 00:00:00.0005"},
		{window("1 month", "1"), "span", "must not be 1 mon"},
		{window("400 days", "1"), "span", "must not be 400 days"},
		{window("1 minute", "-1"), "max_units", "must not be -1"},
		{window("1 minute", "1000000000000001"), "max_units", "must not be 1000000000000001"},
		{`INSERT INTO pacer.quota_windows VALUES ('q', '1 minute', 1, 'bucket')`, "algorithm", "must not be 'bucket'"},
		{quota("shard", "4"), "shard", "must not be 4: the store has 4 shards, from 0"},
		{quota("rollout", "101"), "rollout", "must not be 101"},
		{quota("rollout", "-1"), "rollout", "must not be -1"},
		{quota("rollout", "null"), "rollout", "must not be null"},
		{quota("unit", "'calls'"), "unit", "must not be 'calls'"},
		{quota("unit", "'bytes'"), "unit", "must not be 'bytes' in mode 'strict'"},
		{extended("1 minute", "10001", "log", ""), "max_units", "must not be 10001"},
		{extended("1 day", "1", "sliding", "day"), "anchor", "does not go with algorithm 'sliding'"},
		{extended("1 day", "1", "fixed", "noon"), "anchor", "must not be 'noon'"},
		{extended("1 day", "1", "fixed", "@UTC"), "anchor", "must not be '@UTC'"},
		{extended("1 day", "1", "fixed", strings.Repeat("x", 65)), "anchor", "must not be 'xxx"},
		{extended("1 day", "1", "fixed", "day@Mars/Olympus"), "anchor", "must not be 'day@Mars/Olympus'"},
		{extended("1 day", "1", "fixed", "day@"), "anchor", "must not be 'day@'"},
		{extended("1 day", "1", "fixed", "day@posix/UTC"), "anchor", "must not be 'day@posix/UTC'"},
		{extended("1 day", "1", "fixed", "day@MSK-3"), "anchor", "must not be 'day@MSK-3'"},
		{extended("1 hour", "1", "fixed", "day"), "span", "must not be 01:00:00"},
		{extended("30 days", "1", "fixed", "month@Europe/Moscow"), "span", "must not be 30 days"},
		{`INSERT INTO pacer.quota_windows VALUES ('even', '1 day', 68719476737)`, "max_units", "quota 'even' is spent evenly"},
		{`UPDATE pacer.quotas SET spend = 'even' WHERE id = 'greedy'`, "max_units", "must not be 68719476737: quota 'greedy'"},
		{`UPDATE pacer.store SET shards = 3`, "shards", "must not be 3: there are quotas on shard 3"},
		{`UPDATE pacer.store SET shards = 0`, "shards", "must not be 0"},
		{`UPDATE pacer.store SET shards = 1025`, "shards", "must not be 1025"},
		{`INSERT INTO pacer.quota_windows VALUES ('full', '1 hour 1 second', 1)`, "quota_id", "16 windows already"},
	} {
		_, err := conn.Exec(t.Context(), c.statement)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", c.statement, err)
			continue
		}
		if refused.Code != "23514" || refused.ColumnName != c.column || !strings.Contains(refused.Message, c.message) ||
			refused.Hint == "" || len(refused.Message) > 300 {
			t.Errorf("%s\n: %s %s: %s (%s)\nwant column %s, %q", c.statement, refused.Code, refused.ColumnName, refused.Message,
				refused.Hint, c.column, c.message)
		}
	}
}

// TestSenseIsAccepted is the other side: what must not be refused.
func TestSenseIsAccepted(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('spring', 500)`)
	run(t, conn, `UPDATE pacer.campaigns SET send_rate = 500 WHERE id = 'spring'`)
	for i, rate := range []string{"0, '1 second'", "2.5, '1 second'", "150, '1 minute'", "1, '1 hour'", "0.000001, '1 second'",
		"250000, '1 second'", "1000000, '1 second'", "1, '366 days'", "2.31, '1 second'", "31622400, '366 days'"} {
		run(t, conn, fmt.Sprintf(`INSERT INTO pacer.campaigns (id, send_rate, send_per) VALUES ('c%d', %s)`, i, rate))
	}
	run(t, conn, `INSERT INTO pacer.campaigns (id, time_zone, starts_at, active_hours, ramp, job_ttl, sink, expected_total)
VALUES ('`+strings.Repeat("~", 256)+`', 'Europe/Moscow', now(), '[{"from": "22:00", "to": "06:00"}]', '{"start": 0.5, "factor": 1.5, "every": "90 seconds"}', '3 days',
'receiver', 7)`)
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
	rows, err := queryCampaigns(t.Context(), conn, `WHERE c.id = 'c2'`)
	if err != nil || rows[0].Rate() != "150/1m" {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestEveryChangeIsKept: who, when, old and new; nothing for a statement that changed nothing.
func TestEveryChangeIsKept(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connected(t, dsn)
	changes := func() (n int, last string) {
		t.Helper()
		err := conn.QueryRow(t.Context(), `SELECT count(*) OVER (), concat_ws(' ', who, application, relation, operation, campaign_id, quota_id,
old->>'send_rate', new->>'send_rate') FROM pacer.campaign_changes ORDER BY change DESC LIMIT 1`).Scan(&n, &last)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return n, last
	}
	role := fmt.Sprintf("ops_%d", time.Now().UnixNano())
	run(t, conn, `SET application_name = 'psql'`)
	run(t, conn, `CREATE ROLE `+role)
	t.Cleanup(func() {
		run(t, conn, `RESET ROLE`)
		run(t, conn, `DROP OWNED BY `+role)
		run(t, conn, `DROP ROLE `+role)
	})
	run(t, conn, `GRANT USAGE ON SCHEMA pacer TO `+role)
	run(t, conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON pacer.campaigns, pacer.quotas, pacer.quota_windows, pacer.campaign_quotas TO `+role)
	run(t, conn, `GRANT SELECT ON pacer.campaign_changes TO `+role)
	run(t, conn, `SET ROLE `+role) // may change the catalog, and neither forge nor skip its record
	for i, step := range []struct {
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
		before, _ := changes()
		run(t, conn, step.statement)
		after, last := changes()
		if after-before != step.records || last != role+" psql "+step.record {
			t.Errorf("step %d, %s: %d records, the last %q", i, step.statement, after-before, last)
		}
	}
	var refused *pgconn.PgError
	if _, err := conn.Exec(t.Context(), `DELETE FROM pacer.campaign_changes`); !errors.As(err, &refused) || refused.Code != "42501" {
		t.Errorf("the record can be forged: %v", err)
	}
	run(t, conn, `RESET ROLE`)
	run(t, conn, `REVOKE UPDATE ON pacer.campaigns FROM `+role)
	run(t, conn, `SET ROLE `+role)
	if _, err := conn.Exec(t.Context(), `SELECT pacer.record_cancel('spring', '{u-3}')`); !errors.As(err, &refused) || refused.Code != "42501" {
		t.Errorf("jobs are cancelled by a role that may only look: %v", err)
	}
}

// TestUnchangedRowsKeepTheirRevision: a no-op neither bumps nor announces.
func TestUnchangedRowsKeepTheirRevision(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	revision := func() (r int64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `SELECT revision FROM pacer.campaigns WHERE id = 'spring'`).Scan(&r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('spring', 500)`)
	run(t, conn, `LISTEN `+channel)
	first := revision()
	run(t, conn, setRate, "spring", 500)
	run(t, conn, `UPDATE pacer.campaigns SET updated_at = now() - interval '1 day'`)
	if revision() != first {
		t.Error("nothing changed but the revision")
	}
	run(t, conn, setRate, "spring", 501)
	if revision() <= first {
		t.Error("the rate changed but not the revision")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if n, err := conn.WaitForNotification(ctx); err != nil || n.Payload != "campaigns spring" {
		t.Errorf("notification %+v, %v", n, err)
	}
	run(t, conn, `SELECT 1`)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if n, err := conn.WaitForNotification(short); err == nil {
		t.Errorf("a second notification: %+v", n)
	}
}

// TestOppositeOrders updates two campaigns in opposite orders in two transactions at once. Each may hold a row and wait
// for the other's; then one of them is told so and tries again, and no update is lost.
func TestOppositeOrders(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	setup := connected(t, dsn)
	run(t, setup, `INSERT INTO pacer.campaigns (id) VALUES ('a'), ('b')`)
	done := make(chan error)
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		conn := connected(t, dsn)
		run(t, conn, `SET deadlock_timeout = '20ms'`)
		go func() {
			var err error
			for i := 0; i < 50 && err == nil; i++ {
				err = retryDeadlock(context.Background(), conn, func(tx pgx.Tx) error {
					for _, id := range order {
						if _, err := tx.Exec(context.Background(), `UPDATE pacer.campaigns SET burst = burst + 1 WHERE id = $1`, id); err != nil {
							return err
						}
					}
					return nil
				})
			}
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	var bursts int
	if err := setup.QueryRow(t.Context(), `SELECT sum(burst) FROM pacer.campaigns`).Scan(&bursts); err != nil || bursts != 200 {
		t.Errorf("%d updates of 200 were kept, %v", bursts, err)
	}
}
