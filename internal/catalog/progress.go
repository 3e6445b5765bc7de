package catalog

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// progressBatch is the number of campaigns whose progress one statement saves.
const progressBatch = 1000

// SaveProgress adds settled jobs to each campaign and replaces outlooks: of all campaigns in the list, or of none. A
// campaign appears at most once. Campaigns that do not exist any more are skipped. The call is atomic: a retry after
// an error does not count twice, unless the error occurred during the commit.
func (p *Postgres) SaveProgress(ctx context.Context, list []delivery.Progress) error {
	statement := addSettled
	outlooks := 0
	for _, one := range list {
		if one.Outlook != nil {
			statement = addSettled + replaceOutlook
			outlooks++
		}
	}
	if outlooks > 0 && outlooks < len(list) {
		return invalid("save progress: %d of %d campaigns have an outlook; save them apart", outlooks, len(list))
	}
	return p.database.do(ctx, queryTimeout, "save progress", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return saveProgress(ctx, tx, statement, list) })
	})
}

// AddSettled adds to the settled jobs of campaigns, or takes jobs out of them: those that are replayed.
func (a *Admin) AddSettled(ctx context.Context, jobs map[string]delivery.Settled) error {
	list := make([]delivery.Progress, 0, len(jobs))
	for id, settled := range jobs {
		list = append(list, delivery.Progress{Campaign: id, Settled: settled})
	}
	_, err := ask(ctx, a, func(ctx context.Context, pool *pgxpool.Pool) (none struct{}, err error) {
		return none, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return saveProgress(ctx, tx, addSettled, list) })
	})
	return err
}

// saveProgress writes in the order of the keys, so that daemons that save at the same time cannot deadlock.
func saveProgress(ctx context.Context, tx pgx.Tx, statement string, list []delivery.Progress) error {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b delivery.Progress) int { return cmp.Compare(a.Campaign, b.Campaign) })
	for part := range slices.Chunk(sorted, progressBatch) {
		if _, err := tx.Exec(ctx, statement, progressColumns(part)...); err != nil {
			return err
		}
	}
	return nil
}

const (
	// addSettled inserts no rows of zeros. A count is below zero while jobs are replayed whose end no daemon has saved yet.
	addSettled = `
INSERT INTO pacer.campaign_progress AS p (campaign_id, backlog, retrying, in_flight, done_at, delivered, dead, expired, cancelled, rejected, capped)
SELECT c.id, t.backlog, t.retrying, t.in_flight, t.done_at, t.delivered, t.dead, t.expired, t.cancelled, t.rejected, t.capped
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
         AS t(id, backlog, retrying, in_flight, done_at, delivered, dead, expired, cancelled, rejected, capped)
JOIN pacer.campaigns c ON c.id = t.id
WHERE t.delivered + t.dead + t.expired + t.cancelled + t.rejected + t.capped + t.backlog > 0
   OR EXISTS (SELECT FROM pacer.campaign_progress k WHERE k.campaign_id = t.id)
ORDER BY c.id COLLATE "C"
ON CONFLICT (campaign_id) DO UPDATE
SET delivered = p.delivered + excluded.delivered, dead = p.dead + excluded.dead, expired = p.expired + excluded.expired,
    cancelled = p.cancelled + excluded.cancelled, rejected = p.rejected + excluded.rejected, capped = p.capped + excluded.capped, updated_at = now()`
	replaceOutlook = `, backlog = excluded.backlog, retrying = excluded.retrying, in_flight = excluded.in_flight, done_at = excluded.done_at`
)

// progressColumns converts progress to the arrays for unnest.
func progressColumns(list []delivery.Progress) []any {
	columns := []any{
		column(list, func(p delivery.Progress) string { return p.Campaign }),
		column(list, func(p delivery.Progress) int64 { return orZero(p.Outlook).Total() }),
		column(list, func(p delivery.Progress) int64 { return orZero(p.Outlook).Retrying }),
		column(list, func(p delivery.Progress) int64 { return orZero(p.Outlook).InFlight }),
		column(list, func(p delivery.Progress) *time.Time { return nullable(orZero(p.Outlook).DoneAt) }),
	}
	for _, o := range delivery.SettledOutcomes {
		columns = append(columns, column(list, func(p delivery.Progress) int64 { return p.Settled[o] }))
	}
	return columns
}

// SpreadCampaigns sets the rates of campaigns until their finish_by, in millionths of a unit per hour. Campaigns that do not exist any more,
// and those that another transaction changes, are skipped.
func (p *Postgres) SpreadCampaigns(ctx context.Context, rates map[string]int64) error {
	return p.database.do(ctx, queryTimeout, "spread campaigns", func(ctx context.Context, pool *pgxpool.Pool) error {
		for ids := range slices.Chunk(slices.Sorted(maps.Keys(rates)), progressBatch) {
			if _, err := pool.Exec(ctx, `SELECT pacer.spread_campaigns($1, $2)`, ids, column(ids, func(id string) int64 { return rates[id] })); err != nil {
				return err
			}
		}
		return nil
	})
}

// LoadSettled returns the settled jobs, over all time, of the campaigns with an expected total, and of these others.
func (p *Postgres) LoadSettled(ctx context.Context, others []string) (map[string]delivery.Settled, error) {
	all, id, s := map[string]delivery.Settled{}, "", delivery.Settled{}
	err := p.database.do(ctx, queryTimeout, "load progress", func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, _ := pool.Query(ctx, `
SELECT p.campaign_id, p.delivered, greatest(0, p.dead), greatest(0, p.expired), p.cancelled, p.rejected, p.capped
FROM pacer.campaign_progress p JOIN pacer.campaigns c ON c.id = p.campaign_id WHERE c.expected_total IS NOT NULL OR c.id = ANY ($1)`, others)
		into := []any{&id}
		for _, o := range delivery.SettledOutcomes {
			into = append(into, &s[o])
		}
		_, err := pgx.ForEachRow(rows, into, func() error {
			all[id] = s
			return nil
		})
		return err
	})
	return all, err
}

// LoadOutlooks returns the outlooks that are stored, except those of campaigns without a backlog and an end.
func (p *Postgres) LoadOutlooks(ctx context.Context) (map[string]delivery.Outlook, error) {
	all, id := map[string]delivery.Outlook{}, ""
	var b delivery.Backlog
	var at *time.Time
	err := p.database.do(ctx, queryTimeout, "load progress", func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, _ := pool.Query(ctx, `
SELECT campaign_id, backlog - retrying - in_flight, retrying, in_flight, done_at FROM pacer.campaign_progress WHERE backlog <> 0 OR done_at IS NOT NULL`)
		_, err := pgx.ForEachRow(rows, []any{&id, &b.Waiting, &b.Retrying, &b.InFlight, &at}, func() error {
			all[id] = delivery.Outlook{Backlog: b, DoneAt: orZero(at)}
			return nil
		})
		return err
	})
	return all, err
}
