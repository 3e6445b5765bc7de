package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// ReplayRow is a replay of dead letters, of any process.
type ReplayRow struct {
	Job  json.RawMessage
	Lost bool // it runs, as its process said last, which was long ago
}

const (
	// keptReplays bounds the table, and replayLost is when a process that has not written is taken for gone.
	keptReplays = 100
	replayLost  = 30 * time.Second
)

// SaveReplay writes the progress of a replay. It returns whether to stop it.
func (a *Admin) SaveReplay(ctx context.Context, id string, job json.RawMessage, running bool) (stop bool, err error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (stop bool, err error) {
		var added bool
		err = tx.QueryRow(ctx, `INSERT INTO pacer.replays AS r (id, job, running) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET job = excluded.job, running = excluded.running, beat = clock_timestamp() RETURNING stop, xmax = 0`,
			id, string(job), running).Scan(&stop, &added)
		if err == nil && added {
			_, err = tx.Exec(ctx, `DELETE FROM pacer.replays WHERE id IN (SELECT id FROM pacer.replays ORDER BY begun DESC OFFSET $1 FOR UPDATE SKIP LOCKED)`, keptReplays)
		}
		return stop, err
	})
}

// Replays returns the replays that are remembered, the newest first.
func (a *Admin) Replays(ctx context.Context) ([]ReplayRow, error) {
	return list(ctx, a.database, "", func(row pgx.CollectableRow) (r ReplayRow, err error) {
		var job string
		err = row.Scan(&job, &r.Lost)
		r.Job = json.RawMessage(job)
		return r, err
	}, `SELECT job::text, running AND beat < clock_timestamp() - $1::interval FROM pacer.replays ORDER BY begun DESC LIMIT $2`, replayLost, keptReplays)
}

// StopReplay asks the process that runs a replay to stop it, and returns whether it runs.
func (a *Admin) StopReplay(ctx context.Context, id string) (asked bool, err error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (asked bool, err error) {
		err = tx.QueryRow(ctx, `UPDATE pacer.replays SET stop = true WHERE id = $1 AND running AND beat >= clock_timestamp() - $2::interval RETURNING true`, id, replayLost).Scan(&asked)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return asked, err
	})
}
