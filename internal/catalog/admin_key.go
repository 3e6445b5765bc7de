package catalog

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// KeyChange is what is set for one value of the key of a keyed quota; nil fields stay.
type KeyChange struct {
	Windows   *[]delivery.Window // none: those of the quota
	HeldUntil *time.Time         // zero: not held
}

// GetKeyed returns a quota as daemons have it, with what is set for one value of its key.
func (a *Admin) GetKeyed(ctx context.Context, quota, value string) (*delivery.Quota, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) (*delivery.Quota, error) {
		row, err := oneLinked(ctx, pool, quota)
		if err != nil {
			return nil, err
		}
		var set *string
		err = pool.QueryRow(ctx, `SELECT `+keyRows+` FROM pacer.quota_keys k WHERE k.quota_id = $1 AND k.key = $2`, quota, value).Scan(&set)
		row.Keys = keyRowsOf(set)
		return &row.Quota, err
	})
}

// SetKey changes what is set for a value of the key of a quota.
func (a *Admin) SetKey(ctx context.Context, quota, key string, change KeyChange) error {
	var windows *string
	if change.Windows != nil {
		text := strings.Join(column(*change.Windows, notation.FormatWindow), ",")
		windows = &text
	}
	_, err := quotas.change(ctx, a, quota, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := oneQuota(ctx, tx, quota); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO pacer.quota_keys AS k (quota_id, key, windows, held_until)
VALUES ($1, $2, nullif($3, ''), CASE WHEN isfinite($4::timestamptz) THEN $4::timestamptz END)
ON CONFLICT (quota_id, key) DO UPDATE SET windows = CASE WHEN $3::text IS NULL THEN k.windows ELSE nullif($3, '') END,
    held_until = CASE WHEN $4::timestamptz IS NULL THEN k.held_until WHEN isfinite($4::timestamptz) THEN $4::timestamptz END`,
			quota, key, windows, heldUntil(change.HeldUntil))
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM pacer.quota_keys
WHERE quota_id = $1 AND (key = $2 OR held_until < now()) AND windows IS NULL AND (held_until IS NULL OR held_until < now())`, quota, key)
		}
		return err
	})
	return err
}

// heldUntil returns the instant for SQL: nil to leave it as it is, and negative infinity to clear it.
func heldUntil(at *time.Time) *pgtype.Timestamptz {
	switch {
	case at == nil:
		return nil
	case at.IsZero():
		return &pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return &pgtype.Timestamptz{Time: *at, Valid: true}
}
