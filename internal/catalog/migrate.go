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
	// versionTable is the table in which goose records applied migrations.
	versionTable = "pacer.migrations"
	// migrationLock is held while migrations run ("pacermig"), so that two processes take turns.
	migrationLock int64 = 0x70616365726d6967
	// lockAttempts, a second apart, bounds the wait for another migrating process.
	lockAttempts = 60
)

// Migration is one step of the schema.
type Migration struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"` // of the file
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Migrator updates the schema of a database, or undoes a step. Its methods connect, work and disconnect; concurrent
// processes take turns.
type Migrator struct {
	// Warn, if set, is called with one line for each finding of a migration in the data that an operator has to
	// resolve.
	Warn func(line string)

	database *database
}

// NewMigrator makes a migrator; it opens no connection. The error is one line about postgres.dsn.
func NewMigrator(dsn string) (*Migrator, error) {
	database, err := newDatabase(dsn, "pacer migrate", Renewal{})
	if err != nil {
		return nil, err
	}
	return &Migrator{database: database}, nil
}

// Up applies the pending migrations and returns them, in order. Roles of daemons and operators get their rights on what
// is new.
func (m *Migrator) Up(ctx context.Context) (applied []Migration, err error) {
	err = m.with(ctx, func(db *sql.DB, provider *goose.Provider) error {
		results, err := provider.Up(ctx)
		for _, result := range results {
			applied = append(applied, migrationOf(result.Source, true))
		}
		if err == nil {
			err = extendGrants(ctx, db)
		}
		return err
	})
	return applied, err
}

// Down undoes the newest applied migration and returns it; nil if there is none.
func (m *Migrator) Down(ctx context.Context) (undone *Migration, err error) {
	err = m.with(ctx, func(_ *sql.DB, provider *goose.Provider) error {
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

// SchemaVersion returns the version of the database's schema, 0 if there is none, and the newest that this pacer
// knows. It changes nothing.
func (m *Migrator) SchemaVersion(ctx context.Context) (current, newest int64, err error) {
	err = m.connected(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		current, err = schemaVersion(ctx, conn)
		return err
	})
	if errors.Is(err, ErrSchema) {
		err = nil
	}
	return current, newestVersion(), err
}

// with runs one operation of goose with its own connection pool.
func (m *Migrator) with(ctx context.Context, operate func(*sql.DB, *goose.Provider) error) error {
	config := m.database.target()
	config.OnNotice = m.notice
	db := stdlib.OpenDB(*config)
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

// notice passes on warnings; the server's other notices are about names that exist already.
func (m *Migrator) notice(_ *pgconn.PgConn, n *pgconn.Notice) {
	if m.Warn != nil && n.SeverityUnlocalized == "WARNING" {
		m.Warn(withHint(n.Message, n.Hint))
	}
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

func migrationOf(source *goose.Source, applied bool) Migration {
	return Migration{Version: source.Version, Name: source.Path, Applied: applied}
}

// newestVersion returns the highest version among the embedded migrations.
func newestVersion() int64 {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return 0 // the pattern is a valid constant
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

// checkSchema returns ErrSchema unless the schema is at least what this pacer needs. Migrations only add, so a newer
// schema works too: during a rolling update, old daemons run on the new schema.
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
