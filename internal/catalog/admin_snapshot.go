package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// Snapshot returns the catalog as a daemon sees it: with the reasons why campaigns are held, and the lanes.
func (a *Admin) Snapshot(ctx context.Context) (*delivery.Snapshot, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) (s *delivery.Snapshot, err error) {
		started, options := time.Now(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		err = pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
			all := newState()
			d, err := all.readDelta(ctx, tx, everything)
			if err != nil {
				return err
			}
			d.apply(all)
			s = all.snapshot(started)
			return nil
		})
		return s, err
	})
}
