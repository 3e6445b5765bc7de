package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// Admin reads and changes campaigns and quotas for a person: the commands and the HTTP API. What it is given is
// checked before the database is asked, and every error is one line that names the field and the remedy; ErrInvalid,
// ErrNotFound, ErrUnreachable and ErrSchema tell the kinds apart. It is safe for use by several goroutines at once.
type Admin struct {
	database *database
}

// NewAdmin makes an Admin; it connects to nothing. The error is one line about postgres.dsn.
func NewAdmin(dsn string) (*Admin, error) {
	database, err := newDatabase(dsn, "pacer admin")
	if err != nil {
		return nil, err
	}
	return &Admin{database: database}, nil
}

// Close releases the connections.
func (a *Admin) Close() { a.database.close() }

// Ping tells whether the database answers and its schema serves.
func (a *Admin) Ping(ctx context.Context) error {
	return a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) error { return checkSchema(ctx, pool) })
}

// ListCampaigns returns all campaigns in the order of their ids.
func (a *Admin) ListCampaigns(ctx context.Context) ([]CampaignRow, error) {
	var campaigns []CampaignRow
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		campaigns, err = queryCampaigns(ctx, pool, `ORDER BY c.id COLLATE "C"`)
		return err
	})
	return campaigns, err
}

// GetCampaign returns one campaign.
func (a *Admin) GetCampaign(ctx context.Context, id string) (CampaignRow, error) {
	var campaign CampaignRow
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		campaign, err = oneCampaign(ctx, pool, id)
		return err
	})
	return campaign, err
}

// CreateCampaign creates a campaign; what change does not set gets its default. It is ErrInvalid when the campaign
// exists.
func (a *Admin) CreateCampaign(ctx context.Context, id string, change CampaignChange) (CampaignRow, error) {
	return a.changeCampaign(ctx, id, change, func(ctx context.Context, tx pgx.Tx) error {
		names, places, values := change.assignments(id)
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO pacer.campaigns (%s) VALUES (%s)`, names, places), values...)
		var server *pgconn.PgError
		if errors.As(err, &server) && server.Code == "23505" {
			return invalid("campaign %s exists already; change it with: pacer campaign set %s", id, id)
		}
		return err
	})
}

// SetCampaign changes what change sets and leaves the rest alone.
func (a *Admin) SetCampaign(ctx context.Context, id string, change CampaignChange) (CampaignRow, error) {
	return a.changeCampaign(ctx, id, change, func(ctx context.Context, tx pgx.Tx) error {
		names, places, values := change.assignments(id)
		tag, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE pacer.campaigns SET (%s) = ROW (%s) WHERE id = $1`, names, places), values...)
		if err == nil && tag.RowsAffected() == 0 {
			err = unknownCampaign(id)
		}
		return err
	})
}

// SetStatus pauses, resumes, cancels or completes a campaign.
func (a *Admin) SetStatus(ctx context.Context, id string, status delivery.Status) (CampaignRow, error) {
	return a.SetCampaign(ctx, id, CampaignChange{Status: &status})
}

// LinkQuotas makes the given quotas those of the campaign, and no others.
func (a *Admin) LinkQuotas(ctx context.Context, campaign string, quotas []string) (CampaignRow, error) {
	return a.SetCampaign(ctx, campaign, CampaignChange{Quotas: &quotas})
}

// changeCampaign runs one change of a campaign's row and links in a transaction.
func (a *Admin) changeCampaign(ctx context.Context, id string, change CampaignChange,
	write func(context.Context, pgx.Tx) error) (CampaignRow, error) {
	var campaign CampaignRow
	if err := change.validate(id); err != nil {
		return campaign, err
	}
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			if err = write(ctx, tx); err != nil {
				return err
			}
			if change.Quotas != nil {
				if err = linkQuotas(ctx, tx, id, *change.Quotas); err != nil {
					return err
				}
			}
			campaign, err = oneCampaign(ctx, tx, id)
			return err
		})
	})
	return campaign, err
}

// linkQuotas replaces the links of a campaign; links that stay are not touched.
func linkQuotas(ctx context.Context, tx pgx.Tx, campaign string, quotas []string) error {
	quotas = append([]string{}, quotas...) // nil would be null, and nothing equals or differs from null
	var missing string
	err := tx.QueryRow(ctx, `SELECT wanted FROM unnest($1::text[]) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM pacer.quotas WHERE id = wanted) LIMIT 1`, quotas).Scan(&missing)
	switch {
	case err == nil:
		return invalid("quota %s does not exist; create it with: pacer quota set %s --window 300/1m", missing, missing)
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

// with runs one operation within the time that operations may take, and explains its error.
func (a *Admin) with(ctx context.Context, operate func(context.Context, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*queryTimeout)
	defer cancel()
	pool, err := a.database.pool()
	if err != nil {
		return err
	}
	err = explain(operate(ctx, pool))
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnreachable) {
		return &lineError{cause: err, line: fmt.Sprintf("the database did not answer within %s; "+
			"does another transaction hold the catalog open?", 2*queryTimeout)}
	}
	return err
}

func unknownCampaign(id string) error {
	return notFound("campaign %s does not exist; create it with: pacer campaign create %s --rate 100", id, id)
}

// instant is t, or nil for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
