package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// Admin reads and changes campaigns and quotas for the commands and the HTTP API. Input is checked before the database
// is asked. Every error is one line that names the field and the remedy; ErrInvalid, ErrNotFound, ErrStale, ErrOver, ErrForbidden,
// ErrUnreachable, ErrInDoubt and ErrSchema distinguish the kinds. Safe for concurrent use.
type Admin struct {
	database *database
}

// NewAdmin makes an Admin; it opens no connection. The error is one line about postgres.dsn.
func NewAdmin(dsn string) (*Admin, error) { return NewAdminAs(dsn, "pacer admin", Renewal{}) }

// NewAdminAs is NewAdmin for a long-lived process. Changes record application as their origin.
func NewAdminAs(dsn, application string, renewal Renewal) (*Admin, error) {
	database, err := newDatabase(dsn, application, changeTimeout, renewal)
	if err != nil {
		return nil, err
	}
	return &Admin{database: database}, nil
}

// Close closes the connections.
func (a *Admin) Close() { a.database.close() }

// ListCampaigns returns all campaigns in the order of their ids.
func (a *Admin) ListCampaigns(ctx context.Context) ([]CampaignRow, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) ([]CampaignRow, error) {
		return queryCampaigns(ctx, pool, `ORDER BY c.id COLLATE "C"`)
	})
}

// GetCampaign returns one campaign.
func (a *Admin) GetCampaign(ctx context.Context, id string) (CampaignRow, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) (CampaignRow, error) { return oneCampaign(ctx, pool, id) })
}

// CreateCampaign creates a campaign; fields that change does not set get their defaults. The error is ErrExists if
// the campaign exists.
func (a *Admin) CreateCampaign(ctx context.Context, id string, change CampaignChange) (CampaignRow, error) {
	return a.changeCampaign(ctx, id, change, func(ctx context.Context, tx pgx.Tx, set *assignment) error {
		_, err := tx.Exec(ctx, set.statement(`INSERT INTO pacer.campaigns (%s) VALUES (%s)`), set.values...)
		if isTaken(err) {
			return exists("campaign", id)
		}
		return err
	})
}

// SetCampaign changes the fields that change sets and keeps the rest.
func (a *Admin) SetCampaign(ctx context.Context, id string, change CampaignChange) (CampaignRow, error) {
	return a.changeCampaign(ctx, id, change, func(ctx context.Context, tx pgx.Tx, set *assignment) error {
		tag, err := tx.Exec(ctx, set.statement(`UPDATE pacer.campaigns SET (%s) = ROW (%s) WHERE id = $1`), set.values...)
		if err == nil && tag.RowsAffected() == 0 {
			err = UnknownCampaign(id)
		}
		return err
	})
}

// SetStatusAt makes the status of a campaign, and the end of its pause, what the change says. The campaign must be active or paused;
// otherwise the error is ErrOver. Resuming an active campaign gives it a new revision: daemons that hold the campaign themselves then try it again.
func (a *Admin) SetStatusAt(ctx context.Context, id string, change CampaignChange) (CampaignRow, error) {
	return a.changeCampaign(ctx, id, change, func(ctx context.Context, tx pgx.Tx, _ *assignment) error {
		set, until := `status = $2, paused_until = $3`, nullable(orZero(change.PausedUntil))
		if *change.Status == delivery.StatusActive {
			set += `, revision = revision + 1` // a trigger takes the next one
		}
		tag, err := tx.Exec(ctx, `UPDATE pacer.campaigns SET `+set+` WHERE id = $1 AND status IN ('active', 'paused')`, id, *change.Status, until)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		row, err := oneCampaign(ctx, tx, id)
		if err != nil {
			return err
		}
		return inLine(fmt.Sprintf("campaign %s is %s, and only active and paused campaigns change their status here; to take it up again use: pacer campaign resume %s",
			id, row.Status, id), ErrOver)
	})
}

// DeleteCampaign deletes a campaign that is cancelled or completed and has no backlog, as far as the daemons have saved
// it, and returns what it was. Its changes stay in campaign_changes. revision, if set, is that of the campaign before; else the error is
// ErrStale.
func (a *Admin) DeleteCampaign(ctx context.Context, id string, revision *int64) (CampaignRow, error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (row CampaignRow, err error) {
		if err = takeTurn(ctx, tx); err != nil {
			return row, err
		}
		if err = atRevision(ctx, tx, id, revision); err != nil {
			return row, err
		}
		if row, err = oneCampaign(ctx, tx, id); err != nil {
			return row, err
		}
		switch {
		case row.Status != delivery.StatusCancelled && row.Status != delivery.StatusCompleted:
			return row, invalid("campaign %s is %s, and only cancelled and completed campaigns are deleted; cancel it with: pacer campaign cancel %s",
				id, row.Status, id)
		case row.Progress.Backlog > 0:
			return row, invalid("campaign %s has a backlog of %d jobs; delete it when they are settled, as pacer campaign show %s tells",
				id, row.Progress.Backlog, id)
		}
		_, err = tx.Exec(ctx, `DELETE FROM pacer.campaigns WHERE id = $1`, id)
		return row, err
	})
}

// changeCampaign runs one change of a campaign's row and links in a transaction.
func (a *Admin) changeCampaign(ctx context.Context, id string, change CampaignChange,
	write func(context.Context, pgx.Tx, *assignment) error) (CampaignRow, error) {
	set, err := change.assignment(id)
	if err != nil {
		return CampaignRow{}, err
	}
	return rewrite(ctx, a, id, oneCampaign, change.Quotas != nil, func(ctx context.Context, tx pgx.Tx) (err error) {
		if change.AtRevision != nil {
			err = atRevision(ctx, tx, id, change.AtRevision)
		}
		if err == nil {
			err = write(ctx, tx, set)
		}
		if err == nil && change.Quotas != nil {
			err = linkQuotas(ctx, tx, id, *change.Quotas)
		}
		return err
	})
}

// rewrite makes one change of a row in a transaction, in the turn of writers of quotas if it is about these, and returns the row as it is then.
func rewrite[T any](ctx context.Context, a *Admin, id string, one func(context.Context, querier, string) (T, error), turn bool,
	change func(context.Context, pgx.Tx) error) (T, error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (row T, err error) {
		if turn {
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
		return one(ctx, tx, id)
	})
}

// takeTurn waits for the transactions that change quotas, their windows or links, and makes others wait for this one.
// Every statement about these takes the turn, but only after the snapshot that it reads.
func takeTurn(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `DELETE FROM pacer.campaign_quotas WHERE false`)
	return err
}

// number gives the changes of the transaction their revisions, which they would get when it commits. Other transactions
// cannot commit changes until it does.
func number(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SET CONSTRAINTS ALL IMMEDIATE`)
	return err
}

// linkQuotas replaces the links of a campaign; links that stay are not written.
func linkQuotas(ctx context.Context, tx pgx.Tx, campaign string, quotas []string) error {
	quotas = append([]string{}, quotas...) // not nil: SQL comparisons with null are null
	var missing string
	err := tx.QueryRow(ctx, `SELECT wanted FROM unnest($1::text[]) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM pacer.quotas WHERE id = wanted) LIMIT 1`, quotas).Scan(&missing)
	switch {
	case err == nil:
		return inLine(noQuota(missing), ErrInvalid)
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM pacer.campaign_quotas WHERE campaign_id = $1 AND quota_id <> ALL ($2::text[])`, campaign, quotas)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO pacer.campaign_quotas (campaign_id, quota_id)
SELECT DISTINCT $1, wanted FROM unnest($2::text[]) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM pacer.campaign_quotas WHERE campaign_id = $1 AND quota_id = wanted)`, campaign, quotas)
	return err
}

// ErrInDoubt means that the database was lost while a change was committed: it may have been made.
var ErrInDoubt = errors.New("the database was lost while the change was committed, and it may have been made; look before you repeat it")

// alterAttempts bounds how often a change is tried that deadlocks with transactions of others.
const alterAttempts = 3

// alter makes one change in a transaction, and returns the result of change. Transactions of others that change several
// campaigns may hold and want the same rows as this one; the server then ends one of them.
func alter[T any](ctx context.Context, a *Admin, change func(context.Context, pgx.Tx) (T, error)) (T, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) (answer T, err error) {
		var server *pgconn.PgError
		for range alterAttempts {
			made := false
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
				if err = noteActor(ctx, tx); err == nil {
					answer, err = change(ctx, tx)
				}
				made = err == nil
				return err
			})
			var refused bool
			server, refused = errors.AsType[*pgconn.PgError](err)
			if refused && server.Code == "40P01" {
				continue
			}
			refused = refused && server.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback)
			if err != nil && made && !refused {
				err = inLine(ErrInDoubt.Error(), ErrInDoubt, err)
			}
			break
		}
		if server != nil && server.Code == "42501" { // insufficient privilege
			if why, failed := a.ReadOnly(ctx); failed == nil && why != "" {
				err = inLine(why, ErrForbidden)
			}
		}
		if err != nil {
			return *new(T), err
		}
		return answer, nil
	})
}

// UnknownCampaign is that there is no such campaign.
func UnknownCampaign(id string) error {
	id = notation.Shorten(id)
	return inLine(fmt.Sprintf("campaign %s does not exist; create it with: pacer campaign create %s --rate 100", id, id), ErrNotFound)
}
