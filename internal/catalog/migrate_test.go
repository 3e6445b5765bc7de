package catalog

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

func migrator(t *testing.T, dsn string) *Migrator {
	t.Helper()
	m, err := NewMigrator(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMigrateUpAndDown goes up, all the way down step by step, and up again: every migration can be taken back.
func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	dsn, ctx := harness.Database(t), t.Context()
	m := migrator(t, dsn)
	current, newest, err := m.SchemaVersion(ctx)
	if err != nil || current != 0 || newest != newestVersion() || newest < 3 {
		t.Fatalf("version %d of %d, %v", current, newest, err)
	}
	if status, err := m.Status(ctx); err != nil || len(status) != int(newest) || status[0].Applied {
		t.Fatalf("%+v, %v", status, err)
	}
	for range 2 {
		applied, err := m.Up(ctx)
		if err != nil || len(applied) != int(newest) || applied[0].Name != "00001_campaigns_and_quotas.sql" {
			t.Fatalf("applied %+v, %v", applied, err)
		}
		if again, err := m.Up(ctx); err != nil || len(again) != 0 {
			t.Fatalf("applied again %+v, %v", again, err)
		}
		if current, _, err := m.SchemaVersion(ctx); err != nil || current != newest {
			t.Fatalf("version %d, %v", current, err)
		}
		status, err := m.Status(ctx)
		if err != nil || slices.ContainsFunc(status, func(s Migration) bool { return !s.Applied || s.AppliedAt.IsZero() }) {
			t.Fatalf("%+v, %v", status, err)
		}
		for version := newest; version > 0; version-- {
			if undone, err := m.Down(ctx); err != nil || undone == nil || undone.Version != version {
				t.Fatalf("undone %+v, %v", undone, err)
			}
		}
		if undone, err := m.Down(ctx); err != nil || undone != nil {
			t.Fatalf("undone %+v, %v", undone, err)
		}
		var left int
		err = connected(t, dsn).QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_proc WHERE pronamespace = 'pacer'::regnamespace)
+ (SELECT count(*) FROM pg_class WHERE relnamespace = 'pacer'::regnamespace AND relkind IN ('r', 'S', 'v') AND relname !~ '^migrations')`).Scan(&left)
		if err != nil || left != 0 {
			t.Fatalf("%d things are left, %v", left, err)
		}
	}
}

// before is a database with the schema as it was before the version.
func before(t *testing.T, version int64) (*Migrator, *pgx.Conn, context.Context) {
	t.Helper()
	dsn := migrated(t)
	m := migrator(t, dsn)
	for {
		undone, err := m.Down(t.Context())
		if err != nil || undone == nil {
			t.Fatalf("%+v, %v", undone, err)
		}
		if undone.Version == version {
			return m, connected(t, dsn), t.Context()
		}
	}
}

// TestMigrateKeepsSchedules: what can be kept of schedules that had no meaning yet, and begins now.
func TestMigrateKeepsSchedules(t *testing.T) {
	t.Parallel()
	m, conn, ctx := before(t, 5)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, time_zone, active_hours, ramp) VALUES
('kept', 20, 'Europe/Moscow', '[{"from": "09:00", "to": "21:00"}]', '{"start": 10, "add": 5, "every": "1 minute"}'),
('zone', 20, 'MSK', '[{"from": "09:00", "to": "21:00"}]', '{"from": 10}'), ('hours', 20, 'UTC', '{"mon": "09:00"}', null)`)
	if _, err := m.Up(ctx); err != nil {
		t.Fatal(err)
	}
	rows, err := queryCampaigns(ctx, conn, `ORDER BY c.id`)
	if err != nil || len(rows) != 3 {
		t.Fatalf("%+v, %v", rows, err)
	}
	for _, row := range rows {
		kept := row.ID == "kept"
		if (row.ActiveHours != nil) != kept || (row.Ramp != nil) != kept || (row.RampSince != nil) != kept || row.Campaign().Invalid != "" {
			t.Errorf("%+v: %s", row, row.Campaign().Invalid)
		}
	}
}

// TestMigrateKeepsQuotas: quotas of an older schema keep their shard and their windows.
func TestMigrateKeepsQuotas(t *testing.T) {
	t.Parallel()
	m, conn, ctx := before(t, 4)
	run(t, conn, `INSERT INTO pacer.quotas (id, spend) VALUES ('q', 'even')`)
	run(t, conn, `INSERT INTO pacer.quota_windows VALUES ('q', '1 minute', 5, 'sliding', 'noon'), ('q', '1 day', 20000, 'log', 'noon'),
('q', '1 hour', 9, 'fixed', 'noon'), ('q', '2 days', 68719476737, 'sliding', null)`)
	if _, err := m.Up(ctx); err != nil {
		t.Fatal(err)
	}
	q, err := oneQuota(ctx, conn, "q")
	want := []WindowRow{{"1m", 5, "sliding", ""}, {"1h", 9, "fixed", "noon"}, {"1d", 20000, "log", ""}, {"2d", 68719476737, "sliding", ""}}
	if err != nil || !slices.Equal(q.Windows, want) || q.Shard != 0 || q.Rollout != 100 || q.Unit != "units" {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestMigrateTellsOfQuotasInSeveralShards: the migration says which campaigns have them, and changes nothing; the
// catalog holds those until their links are mended.
func TestMigrateTellsOfQuotasInSeveralShards(t *testing.T) {
	t.Parallel()
	m, conn, ctx := before(t, 8)
	run(t, conn, `UPDATE pacer.store SET shards = 4`)
	run(t, conn, `INSERT INTO pacer.quotas (id, shard, mode) VALUES ('a', 1, 'strict'), ('b', 2, 'shadow'), ('soft', 3, 'eventual')`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('divided', 5), ('whole', 5)`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas VALUES ('divided', 'a'), ('divided', 'b'), ('whole', 'a'), ('whole', 'soft')`)
	var warnings []string
	m.Warn = func(line string) { warnings = append(warnings, line) }
	if applied, err := m.Up(ctx); err != nil || applied[0].Version != 8 {
		t.Fatalf("%+v, %v", applied, err)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "campaign divided is held: its quotas live in several shards of the store: "+
		"a in shard 1, b in shard 2: Create the quotas of a campaign in one shard, by pacer quota set NEW --with QUOTA") {
		t.Errorf("%q", warnings)
	}
	var links int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM pacer.campaign_quotas`).Scan(&links); err != nil || links != 4 {
		t.Errorf("%d links, %v", links, err)
	}
	p := started(t, Options{DSN: conn.Config().ConnString()})
	changed := p.Subscribe()
	s := p.Snapshot()
	if c := s.Campaign("divided"); !strings.HasPrefix(c.Invalid, "its quotas live in several shards of the store: a in shard 1, b in shard 2; create them in one shard") || len(c.Quotas) != 2 {
		t.Errorf("%q, %+v", c.Invalid, c.Quotas)
	}
	if c := s.Campaign("whole"); c.Invalid != "" {
		t.Errorf("%q", c.Invalid)
	}
	run(t, conn, `UPDATE pacer.campaigns SET send_rate = 6 WHERE id = 'divided'`) // other changes go on
	run(t, conn, `DELETE FROM pacer.campaign_quotas WHERE quota_id = 'b'`)
	await(t, p, changed, "the campaign is usable", func(s *delivery.Snapshot) bool { return s.Campaign("divided").Invalid == "" })
}

// TestMigrateAtOnce lets several processes migrate one empty database: all succeed, each step is applied once.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := harness.Database(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	var versions []int64
	for range 3 {
		m := migrator(t, dsn)
		all.Go(func() {
			applied, err := m.Up(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, step := range applied {
				versions = append(versions, step.Version)
			}
		})
	}
	all.Wait()
	if len(versions) != int(newestVersion()) {
		t.Errorf("applied %v", versions)
	}
}

// TestMigrateUnreachable: one line that names the setting, at once.
func TestMigrateUnreachable(t *testing.T) {
	t.Parallel()
	start := time.Now()
	m := migrator(t, "postgres://pacer:hunter2@127.0.0.1:1/pacer")
	_, err := m.Up(t.Context())
	line(t, err, ErrUnreachable, "postgres.dsn: cannot connect to 127.0.0.1:1 as pacer, database pacer: connection refused")
	_, _, err = m.SchemaVersion(t.Context())
	line(t, err, ErrUnreachable, "connection refused")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("after %s", took)
	}
}
