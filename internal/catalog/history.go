package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/notation"
)

const (
	// HistoryKept is how far back a history goes. minutesKept is how far its minutes go: a day, and what is begun of hours and steps.
	HistoryKept = 8 * notation.Day
	minutesKept = 26 * time.Hour
	// HistoryApart is how many campaigns a history of all lists apart, those that sent most; the others are one.
	HistoryApart = 8
	// historyBatch bounds the campaigns that one transaction moves, and historyPrune the rows that one prunes.
	historyBatch, historyPrune = 1000, 20_000
)

// HistoryOf selects a history.
type HistoryOf struct {
	Campaign string // "": all
	Since    time.Time
	Step     time.Duration // whole minutes; whole hours of what is older than a day
}

// HistoryStep is what became of the jobs of a campaign within one step of time.
type HistoryStep struct {
	Campaign  string // "": those that are not apart
	Start     time.Time
	Delivered int64
	Failed    int64   // dead or rejected
	Allowed   float64 // jobs per second, at most
}

// minute returns when the step begins, in minutes since the Unix epoch.
func (h HistoryStep) minute() int64 { return minuteOf(h.Start) }

func scanStep(row pgx.CollectableRow) (h HistoryStep, err error) {
	var minute int64
	err = row.Scan(&h.Campaign, &minute, &h.Delivered, &h.Failed, &h.Allowed)
	h.Start = time.Unix(60*minute, 0).UTC()
	return h, err
}

// AddHistory adds what was settled since the last call to the minute in which it was saved. allowed returns how many jobs per second a
// campaign's schedule allows.
func (p *Postgres) AddHistory(ctx context.Context, allowed func(campaign string) float64) error {
	changed, err := list(ctx, p.database, "read what the history lacks", pgx.RowTo[string],
		`SELECT campaign_id FROM pacer.campaign_progress WHERE `+notInHistory+` ORDER BY campaign_id COLLATE "C"`)
	for batch := range slices.Chunk(changed, historyBatch) {
		if err = p.database.do(ctx, "add to the history of campaigns", func(ctx context.Context, pool *pgxpool.Pool) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return addHistory(ctx, tx, batch, allowed) })
		}); err != nil {
			break // the rest is added by the next call
		}
	}
	return err
}

const notInHistory = `(delivered <> delivered_in_history OR dead + rejected <> failed_in_history)`

func addHistory(ctx context.Context, tx pgx.Tx, campaigns []string, allowed func(campaign string) float64) error {
	rows, _ := tx.Query(ctx, `
SELECT campaign_id, extract(epoch FROM updated_at)::bigint / 60, delivered - delivered_in_history, dead + rejected - failed_in_history, 0::float8
FROM pacer.campaign_progress WHERE campaign_id = ANY ($1) AND `+notInHistory+`
ORDER BY campaign_id COLLATE "C" FOR UPDATE`, campaigns) // in the order in which SaveProgress locks
	added, err := pgx.CollectRows(rows, scanStep)
	if err != nil || len(added) == 0 {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE pacer.campaign_progress SET delivered_in_history = delivered, failed_in_history = dead + rejected
WHERE campaign_id = ANY ($1)`, column(added, func(h HistoryStep) string { return h.Campaign })); err != nil {
		return err
	}
	added = slices.DeleteFunc(added, func(h HistoryStep) bool { return h.Delivered <= 0 && h.Failed <= 0 }) // letters were replayed
	_, err = tx.Exec(ctx, `
INSERT INTO pacer.campaign_history AS h (campaign_id, minute, delivered, failed, allowed)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::float8[])`+addSteps+`, allowed = excluded.allowed`,
		column(added, func(h HistoryStep) string { return h.Campaign }), column(added, HistoryStep.minute),
		column(added, func(h HistoryStep) int64 { return max(0, h.Delivered) }), column(added, func(h HistoryStep) int64 { return max(0, h.Failed) }),
		column(added, func(h HistoryStep) float64 { return allowed(h.Campaign) }))
	return err
}

const addSteps = `
ON CONFLICT (campaign_id, minute) DO UPDATE SET delivered = h.delivered + excluded.delivered, failed = h.failed + excluded.failed`

// PruneHistory merges the minutes of what is older than a day to hours, and deletes what is older than HistoryKept.
func (p *Postgres) PruneHistory(ctx context.Context, now time.Time) error {
	for left := true; left; {
		var err error
		if left, err = p.pruneHistory(ctx, now); err != nil {
			return err
		}
	}
	return nil
}

// pruneHistory goes as far as historyPrune, and returns whether more is left.
func (p *Postgres) pruneHistory(ctx context.Context, now time.Time) (left bool, err error) {
	return read(ctx, p.database, "prune the history of campaigns", func(ctx context.Context, pool *pgxpool.Pool) (left bool, err error) {
		err = pool.QueryRow(ctx, `
WITH old AS (
    DELETE FROM pacer.campaign_history WHERE (campaign_id, minute) IN (
        SELECT campaign_id, minute FROM pacer.campaign_history WHERE minute < $1 AND (minute % 60 <> 59 OR minute < $2) LIMIT $3)
    RETURNING campaign_id, minute / 60 * 60 + 59 AS hour, delivered, failed, allowed
), hours AS (
    INSERT INTO pacer.campaign_history AS h (campaign_id, minute, delivered, failed, allowed)
    SELECT campaign_id, hour, sum(delivered), sum(failed), max(allowed) FROM old WHERE hour >= $2 GROUP BY campaign_id, hour`+addSteps+`,
        allowed = greatest(h.allowed, excluded.allowed))
SELECT count(*) = $3 FROM old`, minuteOf(minutesBegin(now)), minuteOf(now.Add(-HistoryKept)), historyPrune).Scan(&left)
		return left, err
	})
}

// minutesBegin returns the beginning of the first hour that is kept in minutes.
func minutesBegin(now time.Time) time.Time { return now.Add(-minutesKept).Truncate(time.Hour) }

// History returns the steps in which jobs were settled, the oldest first.
func (p *Postgres) History(ctx context.Context, of HistoryOf) ([]HistoryStep, error) {
	step := max(1, int64(of.Step/time.Minute))
	return list(ctx, p.database, "read the history of campaigns", scanStep, `
WITH asked AS NOT MATERIALIZED (
    SELECT * FROM pacer.campaign_history WHERE minute >= $2 AND ($1 = '' OR campaign_id = $1)
), apart AS (
    SELECT campaign_id FROM asked GROUP BY campaign_id ORDER BY sum(delivered + failed) DESC, campaign_id LIMIT $4
), minutes AS (
    SELECT coalesce(a.campaign_id, '') AS id, minute, sum(delivered) AS delivered, sum(failed) AS failed, sum(allowed) AS allowed
    FROM asked LEFT JOIN apart a USING (campaign_id) GROUP BY 1, 2
)
SELECT id, minute / $3 * $3 AS begin, sum(delivered)::bigint, sum(failed)::bigint, max(allowed)
FROM minutes GROUP BY 1, 2 ORDER BY 2, 1`, of.Campaign, minuteOf(of.Since), step, HistoryApart)
}

// AddHistory does nothing: Memory keeps no history.
func (m *Memory) AddHistory(context.Context, func(campaign string) float64) error { return nil }

// PruneHistory does nothing, like AddHistory.
func (m *Memory) PruneHistory(context.Context, time.Time) error { return nil }

// PruneUsage does nothing: use is not kept without a database.
func (m *Memory) PruneUsage(context.Context, time.Time) error { return nil }

// History returns none.
func (m *Memory) History(context.Context, HistoryOf) ([]HistoryStep, error) { return nil, nil }
