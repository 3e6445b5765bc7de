package catalog

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

// TestMigratingBlocksNobody: while a session uses a table, a migration waits for it for a moment at a time, since others wait behind, and is made
// when it can be.
func TestMigratingBlocksNobody(t *testing.T) {
	dsn, user := fresh(t)
	ctx, observer := t.Context(), connected(t, dsn)
	run(t, user, `BEGIN`)
	run(t, user, `LOCK TABLE `+versionTable)
	done := make(chan error, 1)
	go func() {
		_, err := migrator(t, dsn).Up(ctx)
		done <- err
	}()
	waits := map[time.Time]bool{}
	eventually(t, "it waits a second time", func() bool {
		since := value[*time.Time](t, observer, `SELECT max(query_start) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'pacer migrate' AND wait_event_type = 'Lock'`)
		if since != nil {
			waits[*since] = true
		}
		return len(waits) > 1
	})
	run(t, user, `COMMIT`)
	must(t, <-done)
}

// TestStatusOnlyReads: a role that may read and change nothing sees what is applied, and without a schema that nothing is.
func TestStatusOnlyReads(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, migrate := range []bool{false, true} {
		dsn := testservices.Database(t)
		owner := connected(t, dsn)
		if migrate {
			try(migrator(t, dsn).Up(ctx))(t)
		}
		reader, readerDSN := role(t, owner, dsn, "reader")
		if migrate {
			run(t, owner, `GRANT USAGE ON SCHEMA pacer TO `+reader+`; GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+reader)
		}
		status := try(migrator(t, readerDSN).Status(ctx))(t)
		if len(status) != int(newestVersion()) || status[0].Applied != migrate {
			t.Errorf("%+v", status)
		}
		equal(t, "the schema exists", value[bool](t, owner, `SELECT to_regnamespace('pacer') IS NOT NULL`), migrate)
	}
}

// TestMigrateAtOnce lets several processes migrate one empty database: all succeed, each step is applied once, and what is applied is known.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := testservices.Database(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	var names []string
	for range 3 {
		m := migrator(t, dsn)
		all.Go(func() {
			applied, err := m.Up(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			names = append(names, column(applied, func(m Migration) string { return m.Name })...)
		})
	}
	all.Wait()
	slices.Sort(names)
	status := try(migrator(t, dsn).Status(t.Context()))(t)
	equal(t, "applied", names, column(status, func(m Migration) string { return m.Name }))
	if slices.ContainsFunc(status, func(s Migration) bool { return !s.Applied || s.AppliedAt.IsZero() }) {
		t.Errorf("%+v", status)
	}
}

// TestMigrateUnreachable: one line that names the setting, at once.
func TestMigrateUnreachable(t *testing.T) {
	t.Parallel()
	start := time.Now()
	m := migrator(t, "postgres://pacer:hunter2@127.0.0.1:1/pacer")
	refused(t, ErrUnreachable, "postgres.dsn: cannot connect to 127.0.0.1:1 as pacer, database pacer: connection refused")(m.Up(t.Context()))
	refused(t, ErrUnreachable, "connection refused")(m.Status(t.Context()))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("after %s", took)
	}
}
