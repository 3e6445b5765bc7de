package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

// progressBatch is how many campaigns' progress one statement saves.
const progressBatch = 1000

// SaveProgress adds what was settled of each campaign and replaces the outlooks that are given: of all campaigns in the
// list, or of none. A campaign appears at most once. Campaigns that do not exist any more are passed over. All of it is
// saved or nothing: what is tried again after an error counts once, unless the error came with the end of the transaction.
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
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err == nil {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return saveProgress(ctx, tx, statement, list) })
	}
	if err != nil {
		return fmt.Errorf("save progress: %w", explain(err))
	}
	return nil
}

// saveProgress goes in the order of the keys, so that daemons that save at the same time cannot block each other for good.
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
	// addSettled makes no rows of nothing.
	addSettled = `
INSERT INTO pacer.campaign_progress AS p (campaign_id, delivered, dead, expired, cancelled, backlog, done_at)
SELECT c.id, t.delivered, t.dead, t.expired, t.cancelled, t.backlog, t.done_at
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[])
         AS t(id, delivered, dead, expired, cancelled, backlog, done_at)
JOIN pacer.campaigns c ON c.id = t.id
WHERE t.delivered + t.dead + t.expired + t.cancelled + t.backlog > 0
   OR EXISTS (SELECT FROM pacer.campaign_progress k WHERE k.campaign_id = t.id)
ORDER BY c.id COLLATE "C"
ON CONFLICT (campaign_id) DO UPDATE
SET delivered = p.delivered + excluded.delivered, dead = p.dead + excluded.dead, expired = p.expired + excluded.expired,
    cancelled = p.cancelled + excluded.cancelled, updated_at = now()`
	replaceOutlook = `, backlog = excluded.backlog, done_at = excluded.done_at`
)

// progressColumns turns progress into the arrays that unnest takes.
func progressColumns(list []delivery.Progress) []any {
	var ids []string
	var counts [4][]int64
	var backlogs []int64
	var done []*time.Time
	for _, p := range list {
		ids = append(ids, p.Campaign)
		for i, n := range []int64{p.Settled.Delivered, p.Settled.Dead, p.Settled.Expired, p.Settled.Cancelled} {
			counts[i] = append(counts[i], n)
		}
		outlook := delivery.Outlook{}
		if p.Outlook != nil {
			outlook = *p.Outlook
		}
		backlogs, done = append(backlogs, outlook.Backlog), append(done, nullable(outlook.DoneAt))
	}
	return []any{ids, counts[0], counts[1], counts[2], counts[3], backlogs, done}
}

// LoadSettled returns what was ever settled of the campaigns that say how many jobs are expected.
func (p *Postgres) LoadSettled(ctx context.Context) (map[string]delivery.Settled, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err != nil {
		return nil, fmt.Errorf("load progress: %w", err)
	}
	rows, err := pool.Query(ctx, `
SELECT p.campaign_id, p.delivered, p.dead, p.expired, p.cancelled
FROM pacer.campaign_progress p JOIN pacer.campaigns c ON c.id = p.campaign_id WHERE c.expected_total IS NOT NULL`)
	if err != nil {
		return nil, fmt.Errorf("load progress: %w", err)
	}
	all, id, s := map[string]delivery.Settled{}, "", delivery.Settled{}
	_, err = pgx.ForEachRow(rows, []any{&id, &s.Delivered, &s.Dead, &s.Expired, &s.Cancelled}, func() error {
		all[id] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load progress: %w", explain(err))
	}
	return all, nil
}
