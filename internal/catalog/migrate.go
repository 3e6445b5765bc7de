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

	"github.com/pacer/pacer/migrations"
)

const (
	// versionTable is where goose keeps what it has applied.
	versionTable = "pacer.migrations"
	// migrationLock is held while migrations run ("pacermig"), so that two processes take turns.
	migrationLock int64 = 0x70616365726d6967
	// lockAttempts, a second apart, bound the wait for another process that migrates.
	lockAttempts = 60
)

// Migration is one step of the schema.
type Migration struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"` // the file's
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Migrator brings the schema of a database up to date, or a step back. Its methods connect, work and disconnect;
// two processes that migrate at once take turns.
type Migrator struct {
	database *database
}

// NewMigrator makes a migrator; it connects to nothing. The error is one line about postgres.dsn.
func NewMigrator(dsn string) (*Migrator, error) {
	database, err := newDatabase(dsn, "pacer migrate")
	if err != nil {
		return nil, err
	}
	return &Migrator{database: database}, nil
}

// Up applies what is pending and returns it, in order.
func (m *Migrator) Up(ctx context.Context) (applied []Migration, err error) {
	err = m.with(ctx, func(provider *goose.Provider) error {
		results, err := provider.Up(ctx)
		for _, result := range results {
			applied = append(applied, migrationOf(result.Source, true))
		}
		return err
	})
	return applied, err
}

// Down takes the newest applied migration back and returns it; nil when there is none.
func (m *Migrator) Down(ctx context.Context) (undone *Migration, err error) {
	err = m.with(ctx, func(provider *goose.Provider) error {
		result, err := provider.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			return nil
		}
		if err != nil {
			return err
		}
		migration := migrationOf(result.Source, false)
		undone = &migration
		return nil
	})
	return undone, err
}

// Status lists all migrations and which are applied.
func (m *Migrator) Status(ctx context.Context) (all []Migration, err error) {
	err = m.with(ctx, func(provider *goose.Provider) error {
		states, err := provider.Status(ctx)
		for _, state := range states {
			migration := migrationOf(state.Source, state.State == goose.StateApplied)
			migration.AppliedAt = state.AppliedAt
			all = append(all, migration)
		}
		return err
	})
	return all, err
}

// SchemaVersion is the version of the database's schema, 0 without one, and the newest that this pacer knows. It
// changes nothing.
func (m *Migrator) SchemaVersion(ctx context.Context) (current, newest int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, m.database.config.ConnConfig.Copy())
	if err != nil {
		return 0, 0, explain(err)
	}
	defer closeConn(ctx, conn)
	current, err = schemaVersion(ctx, conn)
	if errors.Is(explain(err), ErrSchema) {
		err = nil
	}
	return current, newestVersion(), explain(err)
}

// with runs one operation of goose over a connection pool of its own.
func (m *Migrator) with(ctx context.Context, operate func(*goose.Provider) error) error {
	db := stdlib.OpenDB(*m.database.config.ConnConfig.Copy())
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
	if err := operate(provider); err != nil {
		return fmt.Errorf("migrate: %w", explain(err))
	}
	return nil
}

// createSchema makes room for the table of versions. IF NOT EXISTS alone fails when two processes pass it at once.
func createSchema(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf(
		`DO $$ BEGIN PERFORM pg_advisory_xact_lock(%d); CREATE SCHEMA IF NOT EXISTS pacer; END $$`, migrationLock+1))
	return err
}

func migrationOf(source *goose.Source, applied bool) Migration {
	return Migration{Version: source.Version, Name: source.Path, Applied: applied}
}

// newestVersion is the highest version among the embedded migrations.
func newestVersion() int64 {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return 0 // the pattern is constant and good
	}
	var newest int64
	for _, name := range names {
		if version, err := goose.NumericComponent(name); err == nil {
			newest = max(newest, version)
		}
	}
	return newest
}

// schemaVersion reads the version from an open connection or transaction.
func schemaVersion(ctx context.Context, q querier) (version int64, err error) {
	err = q.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versionTable+` WHERE is_applied`).Scan(&version)
	return version, err
}

// checkSchema is ErrSchema unless the schema is at least what this pacer needs. Migrations only add, so a newer
// schema serves as well: while daemons are replaced one by one, old ones run on the new schema.
func checkSchema(ctx context.Context, q querier) error {
	version, err := schemaVersion(ctx, q)
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "42501" {
		return nil // not allowed to look: the queries themselves will tell
	}
	if err == nil && version < newestVersion() {
		err = ErrSchema
	}
	return err
}
