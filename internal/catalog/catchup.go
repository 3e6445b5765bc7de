package catalog

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// CatchUp gives every campaign and quota a new revision if the database's are below one that was seen of it before: it was
// brought back from a backup, and changes of what it gave out before would not act. It returns whether that was so.
func (p *Postgres) CatchUp(ctx context.Context, seen int64) (behind bool, err error) {
	err = p.database.do(ctx, queryTimeout, "compare revisions", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, `SELECT pacer.catch_up($1)`, seen).Scan(&behind)
	})
	return behind, err
}
