package catalog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SetShards sets the number of shards of the store among which new quotas are spread, 1 to 1024. Existing quotas stay
// in their shards, so the number may grow; the error is ErrInvalid if a quota would lose its shard. Setting the
// current number writes nothing and waits for no transaction.
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
