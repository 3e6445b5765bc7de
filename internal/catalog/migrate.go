package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/migrations"
)

const (
	// versionTable is the table of goose's applied migrations.
	versionTable = "pacer.migrations"
	// migrationLock is held while migrations run ("pacermig"), so that two processes take turns.
	migrationLock int64 = 0x70616365726d6967
	// lockAttempts, a second apart, bounds the wait for another migrating process.
	lockAttempts = 60
	// lockTimeout is how long a statement waits for the sessions that use a table: those that come later wait behind it. It is tried
	// again as often as lockTries, at intervals of the same length.
	lockTimeout = time.Second
	lockTries   = 15
)

// Migration is one step of the schema.
type Migration struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"` // of the file
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Migrator updates the schema of a database. Its methods connect, work and disconnect; concurrent processes take turns.
type Migrator struct {
	database *database
}

// NewMigrator makes a migrator; it opens no connection. The error is one line about postgres.dsn.
func NewMigrator(dsn string) (*Migrator, error) {
	database, err := newDatabase(dsn, "pacer migrate", queryTimeout, Renewal{})
	if err != nil {
		return nil, err
	}
	return &Migrator{database: database}, nil
}

// Up applies the pending migrations and returns them, in order. Roles of daemons and operators get their rights on what
// is new.
func (m *Migrator) Up(ctx context.Context) (applied []Migration, err error) {
	up := func(db *sql.DB, provider *goose.Provider) error {
		results, err := provider.Up(ctx)
		for _, result := range results {
			applied = append(applied, Migration{Version: result.Source.Version, Name: result.Source.Path, Applied: true})
		}
		if err == nil {
			err = extendGrants(ctx, db)
		}
		return err
	}
	err = m.with(ctx, up)
	for tries := 1; isLocked(err) && tries < lockTries && retry.Sleep(ctx, lockTimeout) == nil; tries++ {
		err = m.with(ctx, up)
	}
	if isLocked(err) {
		err = fmt.Errorf("other sessions use the tables; end those that are idle in a transaction, then run pacer migrate up again: %w", err)
	}
	return applied, err
}

// isLocked reports whether a statement has waited in vain for another session.
func isLocked(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "55P03"
}

// Status returns all migrations and whether they are applied. It only reads.
func (m *Migrator) Status(ctx context.Context) ([]Migration, error) {
	all, err := steps()
	if err != nil {
		return nil, err
	}
	err = m.database.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error { return markApplied(ctx, conn, all) })
	if err != nil {
		return nil, fmt.Errorf("read the state of the schema: %w", err)
	}
	return all, nil
}

// markApplied marks those of the migrations that are applied: none if there is no schema.
func markApplied(ctx context.Context, conn querier, all []Migration) error {
	rows, err := conn.Query(ctx, `SELECT version_id, tstamp FROM `+versionTable+` WHERE is_applied`)
	if err == nil {
		var applied Migration
		_, err = pgx.ForEachRow(rows, []any{&applied.Version, &applied.AppliedAt}, func() error {
			for i := range all {
				if all[i].Version == applied.Version {
					all[i].Applied, all[i].AppliedAt = true, applied.AppliedAt
				}
			}
			return nil
		})
	}
	if errors.Is(explain(err), ErrSchema) {
		return nil
	}
	return err
}

// raiseRevisions moves the sequence beyond every revision that the database has given out before it was brought back from a backup. As in
// the first migration, that is the clock: hundredths of a second since 2026. A database whose changes outran the clock needs the other step.
const raiseRevisions = `SELECT setval('pacer.revisions', greatest(last_value + 10000000,
    (extract(epoch FROM now() - timestamptz '2026-01-01 00:00:00Z') * 100)::bigint)) FROM pacer.revisions`

// CatchUp gives every campaign, quota and destination a revision above all that were given out before, and returns how many they are.
// The quota store and daemons then take over what the database says, also if it was brought back from a backup.
func (m *Migrator) CatchUp(ctx context.Context) (rows int64, err error) {
	conn, err := m.database.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer closeConn(ctx, conn)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows = 0
		for _, statement := range []string{
			`SELECT FROM pacer.store FOR UPDATE`, // the turn of changes of quotas
			raiseRevisions,
			`UPDATE pacer.quotas SET revision = revision + 1`,
			`UPDATE pacer.campaigns SET revision = revision + 1`,
			`UPDATE pacer.destinations SET revision = revision + 1`,
			`UPDATE pacer.revision SET removed = nextval('pacer.revisions')`, // rows that are gone: daemons read everything
			`SELECT pg_notify('pacer_catalog', 'campaigns')`,
		} {
			tag, err := tx.Exec(ctx, statement)
			if err != nil {
				return err
			}
			if tag.Update() {
				rows += tag.RowsAffected()
			}
		}
		rows-- // that of pacer.revision
		return nil
	})
	return rows, explain(err)
}

// Install stores what the database is set up for. Quotas stay in their shards, so the number of shards may grow: the error is ErrInvalid
// if a quota would lose its shard. 0 leaves it as it is.
func (m *Migrator) Install(ctx context.Context, i delivery.Installation) error {
	return m.database.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `UPDATE pacer.store SET cluster_id = $1, group_id = $2, topic_prefix = $3, shards = coalesce(nullif($4, 0), shards)`,
			i.Cluster, i.Group, i.Prefix, i.Shards)
		return err
	})
}

// Sessions returns the number of sessions of daemons and consoles in the database. A role may see it under any user.
func (m *Migrator) Sessions(ctx context.Context) (count int, err error) {
	err = m.database.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()`, daemonApplication).Scan(&count)
	})
	return count, err
}

// Wipe removes the schema with everything in it, and reports whether there was one. Views of other schemas that read its tables go with it.
func (m *Migrator) Wipe(ctx context.Context) (existed bool, err error) {
	err = m.database.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, `SELECT to_regnamespace('pacer') IS NOT NULL`).Scan(&existed); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `DROP SCHEMA IF EXISTS pacer CASCADE`)
		return err
	})
	return existed, err
}

// with runs one operation of goose with its own connection pool.
func (m *Migrator) with(ctx context.Context, operate func(*sql.DB, *goose.Provider) error) error {
	db := stdlib.OpenDB(*m.database.target(), stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = '%dms'", lockTimeout.Milliseconds()))
		return err
	}))
	defer func() { _ = db.Close() }()
	if err := createSchema(ctx, db); err != nil {
		return explain(err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(migrationLock), lock.WithLockTimeout(1, lockAttempts))
	if err != nil {
		return fmt.Errorf("make the lock for migrating: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if err := operate(db, provider); err != nil {
		return fmt.Errorf("migrate: %w", explain(err))
	}
	return nil
}

// createSchema creates the schema of the version table. IF NOT EXISTS alone fails if two processes execute it at once,
// and for a role that owns the schema and may create no other.
func createSchema(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf(`DO $$ BEGIN
    PERFORM pg_advisory_xact_lock(%d);
    IF to_regnamespace('pacer') IS NULL THEN CREATE SCHEMA pacer; END IF;
END $$`, migrationLock+1))
	return err
}

// steps returns the embedded migrations, in order.
func steps() ([]Migration, error) {
	names, err := fs.Glob(migrations.FS, "*.sql") // sorted
	if err != nil {
		return nil, err
	}
	all := make([]Migration, 0, len(names))
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("read the migrations: %w", err)
		}
		all = append(all, Migration{Version: version, Name: name})
	}
	return all, nil
}

// newestVersion returns the highest version among the embedded migrations.
func newestVersion() int64 {
	all, err := steps()
	if err != nil || len(all) == 0 {
		return 0 // goose says why when it reads them
	}
	return all[len(all)-1].Version
}

// schemaVersion reads the version from an open connection or transaction.
func schemaVersion(ctx context.Context, q querier) (version int64, err error) {
	err = q.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versionTable+` WHERE is_applied`).Scan(&version)
	return version, err
}

// checkSchema returns ErrSchema unless the schema is at least what this pacer needs. Migrations only add, so a newer
// schema works too.
func checkSchema(ctx context.Context, q querier) error {
	version, err := schemaVersion(ctx, q)
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "42501" {
		return nil // no privilege to check: the queries themselves will fail if need be
	}
	if err == nil && version < newestVersion() {
		err = ErrSchema
	}
	return err
}
