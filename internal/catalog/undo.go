package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/pacer/pacer/migrations"
)

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

// Status returns all migrations and whether they are applied. It only reads.
func (m *Migrator) Status(ctx context.Context) ([]Migration, error) {
	all, err := steps()
	if err != nil {
		return nil, err
	}
	err = m.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error { return markApplied(ctx, conn, all) })
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

// Newest returns the migration that Down would undo, and the tables and columns that would be removed although they hold
// data. The migration is nil if none is applied. It changes nothing, but locks what Down would lock.
func (m *Migrator) Newest(ctx context.Context) (newest *Migration, holding []string, err error) {
	all, err := m.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		if all[i].Applied {
			newest = &all[i]
		}
	}
	if newest == nil {
		return nil, nil, nil
	}
	text, err := fs.ReadFile(migrations.FS, newest.Name)
	if err != nil {
		return nil, nil, err
	}
	_, down, _ := strings.Cut(string(text), "-- +goose Down")
	err = m.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // whatever it did is undone
		holding, err = heldBy(ctx, tx, down)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look for data that undoing %s would remove: %w", newest.Name, err)
	}
	return newest, holding, nil
}

// heldBy returns the tables and columns that the statements remove although they hold data.
func heldBy(ctx context.Context, tx pgx.Tx, statements string) (holding []string, err error) {
	before, err := listColumns(ctx, tx)
	if err != nil {
		return nil, err
	}
	var after []tableColumn
	trial, err := tx.Begin(ctx) // a savepoint
	if err == nil {
		_, err = trial.Conn().PgConn().Exec(ctx, statements).ReadAll()
	}
	if err == nil {
		after, err = listColumns(ctx, trial)
	}
	if err == nil {
		err = trial.Rollback(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, c := range before {
		stays := slices.ContainsFunc(after, func(a tableColumn) bool { return a.Table == c.Table && a.Column == c.Column })
		whole := !slices.ContainsFunc(after, func(a tableColumn) bool { return a.Table == c.Table })
		if stays || slices.Contains(holding, c.Table) {
			continue
		}
		holds, err := c.holdsData(ctx, tx, whole)
		switch {
		case err != nil:
			return nil, err
		case holds && whole && c.Single:
		case holds && whole:
			holding = append(holding, c.Table)
		case holds:
			holding = append(holding, c.Table+"."+c.Column)
		}
	}
	return holding, nil
}

// tableColumn is a column of a table of the schema.
type tableColumn struct {
	Table, Column string // quoted for SQL where necessary
	Default       string // an expression
	Single        bool   // the table has one row, which a migration made
}

// listColumns lists the columns of all tables.
func listColumns(ctx context.Context, tx pgx.Tx) ([]tableColumn, error) {
	rows, _ := tx.Query(ctx, `
SELECT format('%I.%I', n.nspname, t.relname), quote_ident(c.attname), coalesce(pg_get_expr(d.adbin, d.adrelid), 'NULL'),
    EXISTS (SELECT FROM pg_attribute o WHERE o.attrelid = t.oid AND o.attname = 'only_row' AND NOT o.attisdropped)
FROM pg_attribute c
JOIN pg_class t ON t.oid = c.attrelid AND t.relkind IN ('r', 'p')
JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = 'pacer'
LEFT JOIN pg_attrdef d ON d.adrelid = c.attrelid AND d.adnum = c.attnum
WHERE c.attnum > 0 AND NOT c.attisdropped
ORDER BY 1, c.attnum`)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[tableColumn])
}

// holdsData reports whether the table has a row, or, if the table stays, one with a value other than the column's
// default.
func (c tableColumn) holdsData(ctx context.Context, tx pgx.Tx, whole bool) (holds bool, err error) {
	query := `SELECT EXISTS (SELECT FROM ` + c.Table
	if !whole {
		query += ` WHERE ` + c.Column + ` IS DISTINCT FROM (` + c.Default + `)`
	}
	err = tx.QueryRow(ctx, query+`)`).Scan(&holds)
	return holds, err
}

// connected runs one operation with a connection of its own, within the time for a query.
func (m *Migrator) connected(ctx context.Context, operate func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, m.database.target())
	if err != nil {
		return explain(err)
	}
	defer closeConn(ctx, conn)
	return explain(operate(ctx, conn))
}
