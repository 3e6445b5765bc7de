package catalog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// failingBatch is how many destinations one statement notes: it locks their rows.
const failingBatch = 1000

// NoteFailing notes since when each of the destinations has failed; a zero time says that it works. Where an earlier time is noted, that
// stays. Those that do not exist any more, or are disabled, are skipped; but one that works is enabled if a daemon has disabled it within the
// last minute, which did not know of that yet.
func (p *Postgres) NoteFailing(ctx context.Context, since map[string]time.Time) error {
	return p.database.do(ctx, queryTimeout, "note which destinations fail", func(ctx context.Context, pool *pgxpool.Pool) error {
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
	return read(ctx, p.database, queryTimeout, "disable destination "+id, func(ctx context.Context, pool *pgxpool.Pool) (done bool, err error) {
		err = pool.QueryRow(ctx, `SELECT pacer.disable_destination($1, $2, $3)`, id, seen, reason).Scan(&done)
		return done, err
	})
}

// NoteFailing notes since when destinations have failed, as Postgres.NoteFailing does.
func (m *Memory) NoteFailing(ctx context.Context, since map[string]time.Time) error {
	return m.alterEndpoints(ctx, "note which destinations fail", slices.Sorted(maps.Keys(since)), func(e *delivery.Destination) bool {
		at, ended := since[e.ID], m.state.endpoints.rows[e.ID].ended
		switch {
		case at.IsZero() && e.Disabled() && time.Since(ended) < time.Minute:
			e.DisabledAt, e.DisabledReason, e.FailingSince = 0, "", 0
			e.Renewed++
			return true
		case e.Disabled() || (e.FailingSince == 0) == at.IsZero():
			return false
		}
		e.FailingSince = delivery.StampOf(at)
		return true
	})
}

// DisableFailing disables a destination as it was at a revision, as Postgres.DisableFailing does.
func (m *Memory) DisableFailing(ctx context.Context, id string, seen int64, reason string) (done bool, err error) {
	err = m.alterEndpoints(ctx, "disable destination "+id, []string{id}, func(e *delivery.Destination) bool {
		if done = !e.Disabled() && e.Revision == seen; done {
			e.DisabledAt, e.DisabledReason = delivery.StampOf(time.Now()), reason[:min(len(reason), maxDisabledReason)]
		}
		return done
	})
	return done, err
}

// maxDisabledReason bounds why a destination is disabled.
const maxDisabledReason = 500

// alterEndpoints replaces destinations by changed copies, since one in a snapshot is immutable. A copy that mutate says is as it was
// changes nothing.
func (m *Memory) alterEndpoints(ctx context.Context, what string, ids []string, mutate func(*delivery.Destination) bool) error {
	return m.locked(ctx, what, func() {
		for _, id := range ids {
			entry := m.state.endpoints.rows[id]
			if entry == nil {
				continue
			}
			row := *entry.row
			if !mutate(&row) {
				continue
			}
			m.state.revision++
			row.Revision = m.state.revision
			entry = &endpointEntry{row: &row}
			if row.Disabled() {
				entry.ended = row.DisabledAt.Time()
			}
			m.state.endpoints.put(entry)
		}
		m.publish(m.state.snapshot(time.Now()))
	})
}
