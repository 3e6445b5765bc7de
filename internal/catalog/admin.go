package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

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

// WriteCampaign creates a campaign, or changes what change sets and keeps the rest.
func (a *Admin) WriteCampaign(ctx context.Context, id string, change *CampaignChange, on Precondition) (CampaignRow, error) {
	zone, unread := a.zoneOf(ctx, id, change)
	set, err := change.assignment(id, zone)
	if err = cmp.Or(err, unread); err != nil {
		return CampaignRow{}, err
	}
	return campaigns.change(ctx, a, id, func(ctx context.Context, tx pgx.Tx) (err error) {
		if change.Quotas != nil {
			err = takeTurn(ctx, tx)
		}
		if err == nil {
			err = campaigns.write(ctx, tx, id, set, on)
		}
		if err == nil && change.Quotas != nil {
			err = linkQuotas(ctx, tx, id, *change.Quotas)
		}
		return err
	})
}

// zoneOf returns the time zone of the times in a change: that of the change, or else that of the campaign. With an error it is UTC.
func (a *Admin) zoneOf(ctx context.Context, id string, c *CampaignChange) (*time.Location, error) {
	if c.TimeZone != nil || c.StartsAt == nil && c.EndsAt == nil && c.FinishBy == nil {
		return notation.ZoneOrUTC(orZero(c.TimeZone)), nil
	}
	row, err := a.GetCampaign(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return time.UTC, err
	}
	return notation.ZoneOrUTC(row.TimeZone), nil
}

// SetStatus changes the status of a campaign at a revision; nil: at any. until is when a pause ends by itself, a time or a span; "" for
// never. The campaign must be active or paused; otherwise the error is ErrOver. Resuming an active campaign gives it a new revision: daemons
// that hold the campaign themselves then try it again.
func (a *Admin) SetStatus(ctx context.Context, id string, status delivery.Status, until string, at *int64) (CampaignRow, error) {
	set, end := `status = $2, paused_until = $3`, (*time.Time)(nil)
	switch {
	case status == delivery.StatusActive:
		set += `, revision = revision + 1` // a trigger takes the next one
	case status == delivery.StatusPaused && until != "":
		var err error
		if end, err = parseUntil(until); err != nil {
			return CampaignRow{}, err
		}
	}
	return campaigns.change(ctx, a, id, func(ctx context.Context, tx pgx.Tx) error {
		if err := campaigns.lock(ctx, tx, id, at); err != nil {
			return err
		}
		var is delivery.Status
		err := tx.QueryRow(ctx, `SELECT status FROM pacer.campaigns WHERE id = $1`, id).Scan(&is)
		if err == nil && is != delivery.StatusActive && is != delivery.StatusPaused {
			err = inLine(fmt.Sprintf("campaign %s is %s, and only active and paused campaigns change their status here; to take it up again use: pacer campaign resume %s",
				id, is, id), ErrOver)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE pacer.campaigns SET `+set+` WHERE id = $1`, id, status, end)
		}
		return err
	})
}

// parseUntil reads when a pause ends by itself, a time or a span from now on.
func parseUntil(text string) (*time.Time, error) {
	at, err := notation.ParseUntil(text, time.Now())
	if err != nil {
		return nil, invalid("until: %s", err)
	}
	return &at, nil
}

// DeleteCampaign deletes a campaign that is cancelled or completed and has no backlog, as far as the daemons have saved
// it, and returns what it was. Its changes stay in campaign_changes. revision, if set, is that of the campaign before; else the error is
// ErrStale.
func (a *Admin) DeleteCampaign(ctx context.Context, id string, revision *int64) (CampaignRow, error) {
	return campaigns.remove(ctx, a, id, revision, func(row CampaignRow) error {
		switch {
		case row.Status != delivery.StatusCancelled && row.Status != delivery.StatusCompleted:
			return invalid("campaign %s is %s, and only cancelled and completed campaigns are deleted; cancel it with: pacer campaign cancel %s",
				id, row.Status, id)
		case row.Progress.Backlog > 0:
			return invalid("campaign %s has a backlog of %d jobs; delete it when they are settled, as pacer campaign show %s tells",
				id, row.Progress.Backlog, id)
		}
		return nil
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
		return inLine(unknownQuota(missing).Error(), ErrInvalid)
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
