package catalog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SetShards says among how many shards of the store new quotas are spread, 1 to 1024. Quotas that exist stay where they
// are, so the number may grow; it is ErrInvalid to leave a quota without its shard. Setting what is set already writes
// nothing and waits for nobody.
func (a *Admin) SetShards(ctx context.Context, n int) error {
	return a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		var known int
		err := pool.QueryRow(ctx, `SELECT shards FROM pacer.store`).Scan(&known)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) || known == n && n > 0 {
			return err
		}
		_, err = pool.Exec(ctx, `INSERT INTO pacer.store (shards) VALUES ($1) ON CONFLICT (only_row) DO UPDATE SET shards = $1`, n)
		return err
	})
}
