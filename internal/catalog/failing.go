package catalog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// failingBatch is how many destinations one statement notes: it locks their rows.
const failingBatch = 1000

// NoteFailing notes since when each of the destinations has failed; a zero time says that it works. Where an earlier time is noted, that
// stays. Those that do not exist any more, or are disabled, are skipped; but one that works is enabled if a daemon has disabled it within the
// last minute, which did not know of that yet.
func (p *Postgres) NoteFailing(ctx context.Context, since map[string]time.Time) error {
	return p.database.do(ctx, "note which destinations fail", func(ctx context.Context, pool *pgxpool.Pool) error {
		for ids := range slices.Chunk(slices.Sorted(maps.Keys(since)), failingBatch) {
			times := column(ids, func(id string) *time.Time { return nullable(since[id]) })
			if _, err := pool.Exec(ctx, `SELECT pacer.destinations_fail($1, $2)`, ids, times); err != nil {
				return err
			}
		}
		return nil
	})
}

// DisableFailing disables a destination as it was at a revision. done is false if it was changed since, or is disabled.
func (p *Postgres) DisableFailing(ctx context.Context, id string, seen int64, reason string) (done bool, err error) {
	return read(ctx, p.database, "disable destination "+id, func(ctx context.Context, pool *pgxpool.Pool) (done bool, err error) {
		err = pool.QueryRow(ctx, `SELECT pacer.disable_destination($1, $2, $3)`, id, seen, reason).Scan(&done)
		return done, err
	})
}

// NoteFailing does nothing: there are no destinations without a database.
func (m *Memory) NoteFailing(context.Context, map[string]time.Time) error { return nil }

// DisableFailing does nothing, like NoteFailing.
func (m *Memory) DisableFailing(context.Context, string, int64, string) (done bool, err error) {
	return false, nil
}
