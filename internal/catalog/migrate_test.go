package catalog

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

func migrator(t *testing.T, dsn string) *Migrator {
	t.Helper()
	m, err := NewMigrator(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMigrateUp: each migration is applied once, and what is applied is known.
func TestMigrateUp(t *testing.T) {
	t.Parallel()
	dsn, ctx := testservices.Database(t), t.Context()
	m := migrator(t, dsn)
	if status, err := m.Status(ctx); err != nil || len(status) == 0 || status[0].Applied {
		t.Fatalf("%+v, %v", status, err)
	}
	applied, err := m.Up(ctx)
	if err != nil || len(applied) == 0 || applied[0].Name != "00001_pacer.sql" || applied[len(applied)-1].Version != newestVersion() {
		t.Fatalf("applied %+v, %v", applied, err)
	}
	if again, err := m.Up(ctx); err != nil || len(again) != 0 {
		t.Fatalf("applied again %+v, %v", again, err)
	}
	status, err := m.Status(ctx)
	if err != nil || slices.ContainsFunc(status, func(s Migration) bool { return !s.Applied || s.AppliedAt.IsZero() }) {
		t.Fatalf("%+v, %v", status, err)
	}
}

// TestMigratingBlocksNobody: while a session uses a table, a migration waits for it for a moment at a time, since others wait behind, and is made
// when it can be.
func TestMigratingBlocksNobody(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	user, observer := connected(t, dsn), connected(t, dsn)
	run(t, user, `BEGIN`)
	run(t, user, `LOCK TABLE `+versionTable)
	done := make(chan error, 1)
	go func() {
		_, err := migrator(t, dsn).Up(ctx)
		done <- err
	}()
	waits := map[time.Time]bool{}
	eventually(t, "it waits a second time", func() bool {
		var since *time.Time
		err := observer.QueryRow(ctx, `SELECT max(query_start) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'pacer migrate' AND wait_event_type = 'Lock'`).Scan(&since)
		if err != nil {
			t.Fatal(err)
		}
		if since != nil {
			waits[*since] = true
		}
		return len(waits) > 1
	})
	run(t, user, `COMMIT`)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStatusOnlyReads: a role that may read and change nothing sees what is applied, and without a schema that nothing is.
func TestStatusOnlyReads(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, migrate := range []bool{false, true} {
		dsn := testservices.Database(t)
		owner := connected(t, dsn)
		if migrate {
			if _, err := migrator(t, dsn).Up(ctx); err != nil {
				t.Fatal(err)
			}
		}
		reader, readerDSN := role(t, owner, dsn, "reader")
		if migrate {
			run(t, owner, `GRANT USAGE ON SCHEMA pacer TO `+reader+`; GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+reader)
		}
		status, err := migrator(t, readerDSN).Status(ctx)
		if err != nil || len(status) != int(newestVersion()) || status[0].Applied != migrate {
			t.Errorf("%+v, %v", status, err)
		}
		var made bool
		if err := owner.QueryRow(ctx, `SELECT to_regnamespace('pacer') IS NOT NULL`).Scan(&made); err != nil || made != migrate {
			t.Errorf("the schema exists: %t, %v", made, err)
		}
	}
}

// TestMigrateAtOnce lets several processes migrate one empty database: all succeed, each step is applied once.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := testservices.Database(t)
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
	_, err = m.Status(t.Context())
	line(t, err, ErrUnreachable, "connection refused")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("after %s", took)
	}
}
