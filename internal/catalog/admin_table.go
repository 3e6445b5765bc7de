package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Precondition is what must be so for a row to be written; else the error is ErrExists, ErrNotFound or ErrStale.
type Precondition struct {
	New bool   // it does not exist
	At  *int64 // it exists at this revision; nil: at any
}

// table is one whose rows people write, and which are shown as T.
type table[T any] struct {
	kind     string // of one row; the name of the table has an s at the end
	revision string // that people see of a row
	turn     bool   // its rows are written in the turn of writers of quotas
	one      func(context.Context, querier, string) (T, error)
	unknown  func(id string) error
}

var (
	campaigns    = table[CampaignRow]{"campaign", "coalesce(set_revision, revision)", false, oneCampaign, UnknownCampaign}
	quotas       = table[QuotaRow]{"quota", "revision", true, oneQuota, unknownQuota}
	destinations = table[DestinationRow]{"destination", "revision", false, oneDestination, unknownDestination}
)

// change makes one change in a transaction, and returns the row as it is then.
func (t table[T]) change(ctx context.Context, a *Admin, id string, change func(context.Context, pgx.Tx) error) (T, error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (row T, err error) {
		if t.turn {
			err = takeTurn(ctx, tx)
		}
		if err == nil {
			err = change(ctx, tx)
		}
		if err == nil {
			err = number(ctx, tx)
		}
		if err != nil {
			return row, err
		}
		return t.one(ctx, tx, id)
	})
}

// lock locks a row, which must be as it was at a revision, if there is one. Daemons add counts of it meanwhile.
func (t table[T]) lock(ctx context.Context, tx pgx.Tx, id string, at *int64) error {
	var is int64
	err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT %s FROM pacer.%ss WHERE id = $1 FOR NO KEY UPDATE`, t.revision, t.kind), id).Scan(&is)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return t.unknown(id)
	case err == nil && at != nil && *at != is:
		return Fault(ErrStale, "%s %s was changed meanwhile: its revision is %d, not %d; look at it again", t.kind, id, is, *at)
	}
	return err
}

// write creates a row, or changes it, as an assignment says.
func (t table[T]) write(ctx context.Context, tx pgx.Tx, id string, set *assignment, on Precondition) error {
	statement := `UPDATE pacer.` + t.kind + `s SET (%s) = ROW (%s) WHERE id = $1`
	if on.New {
		statement = `INSERT INTO pacer.` + t.kind + `s (%s) VALUES (%s)`
	} else if err := t.lock(ctx, tx, id, on.At); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, set.statement(statement), set.values...)
	if server, refused := errors.AsType[*pgconn.PgError](err); refused && server.Code == "23505" && on.New {
		return inLine(fmt.Sprintf("%s %s exists already; change it with: pacer %s set %s", t.kind, id, t.kind, id), ErrInvalid, ErrExists)
	}
	return err
}

// remove deletes a row as it was at a revision, if there is one, unless refuse says why not, and returns what it was.
func (t table[T]) remove(ctx context.Context, a *Admin, id string, at *int64, refuse func(T) error) (T, error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (row T, err error) {
		if err = takeTurn(ctx, tx); err == nil {
			err = t.lock(ctx, tx, id, at)
		}
		if err == nil {
			row, err = t.one(ctx, tx, id)
		}
		if err == nil {
			err = refuse(row)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM pacer.`+t.kind+`s WHERE id = $1`, id)
		}
		return row, err
	})
}
