package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

// Condition is what Check has found. Of a schema that is older than this pacer, only the versions are known.
type Condition struct {
	Schema, Newest int64 // version of the schema, and the newest that this pacer knows
	// Missing are the rights that the user lacks as a daemon's, as GRANT statements; "" for none.
	Missing   string
	Behind    bool          // the sequence of revisions is behind the rows: changes do not act
	Ahead     time.Duration // of the server's clock, as far as it is certain
	Encrypted bool          // the connection is
	delivery.Installation
}

// Check connects to the catalog once, as a daemon would, and changes nothing. The error is one line about what does not
// work.
func Check(ctx context.Context, dsn string, renew Renewal) (Condition, error) {
	found := Condition{Newest: newestVersion()}
	d, err := newDatabase(dsn, "pacer check", queryTimeout, renew)
	if err != nil {
		return found, err
	}
	err = d.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return found.read(ctx, tx) })
	})
	if errors.Is(err, ErrSchema) {
		err = nil
	}
	return found, err
}

func (c *Condition) read(ctx context.Context, tx pgx.Tx) (err error) {
	var there time.Time
	before := time.Now()
	err = tx.QueryRow(ctx, `SELECT clock_timestamp(), EXISTS (SELECT FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl)`).
		Scan(&there, &c.Encrypted)
	if err != nil {
		return err
	}
	switch after := time.Now(); {
	case there.After(after):
		c.Ahead = there.Sub(after)
	case there.Before(before):
		c.Ahead = there.Sub(before)
	}
	if c.Schema, err = schemaVersionSeen(ctx, tx); err != nil || c.Schema < c.Newest {
		return err
	}
	if err = tx.QueryRow(ctx, selectStore).Scan(nil, &c.Cluster, &c.Group, &c.Prefix, &c.Shards); err != nil {
		return err
	}
	if c.Missing, err = missingRights(ctx, tx); err != nil || c.Missing != "" {
		return err
	}
	if err = tx.QueryRow(ctx, `SELECT coalesce(last_value, newest) < newest FROM pg_sequences, (SELECT greatest(
    (SELECT max(revision) FROM pacer.campaigns), (SELECT max(revision) FROM pacer.quotas), (SELECT max(revision) FROM pacer.destinations),
    (SELECT removed FROM pacer.revision)) AS newest) AS rows
WHERE schemaname = 'pacer' AND sequencename = 'revisions'`).Scan(&c.Behind); err != nil {
		return err
	}
	// A server that takes no writes, such as a standby, says so only when it is written to.
	_, err = tx.Exec(ctx, `UPDATE pacer.positions SET updated_at = updated_at WHERE false`)
	return err
}

// schemaVersionSeen is schemaVersion for a user who may not be allowed to read it.
func schemaVersionSeen(ctx context.Context, tx pgx.Tx) (version int64, err error) {
	var may bool
	err = tx.QueryRow(ctx, `SELECT coalesce(has_schema_privilege(to_regnamespace('pacer'), 'USAGE'), true)`).Scan(&may)
	if err != nil {
		return 0, err
	}
	if !may {
		return 0, invalid("postgres.dsn: its user may not use the schema pacer; grant the rights of a daemon")
	}
	err = tx.QueryRow(ctx, `SELECT coalesce(has_table_privilege(to_regclass($1), 'SELECT'), true)`, versionTable).Scan(&may)
	if err != nil || !may {
		return newestVersion(), err // unknown; the rights say the rest
	}
	return schemaVersion(ctx, tx)
}
