package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// progressBatch is the number of campaigns or destinations whose progress one statement saves.
const progressBatch = 1000

// SaveProgress adds settled jobs to each campaign and destination and replaces outlooks: of all in the list, or of none. Each appears at most
// once. Those that do not exist any more are skipped. The call is atomic: a retry after an error does not count twice, unless the error
// occurred during the commit.
func (p *Postgres) SaveProgress(ctx context.Context, list []delivery.Progress) error {
	outlooks := 0
	for _, one := range list {
		if one.Outlook != nil {
			outlooks++
		}
	}
	if outlooks > 0 && outlooks < len(list) {
		return invalid("save progress: %d of %d have an outlook; save them apart", outlooks, len(list))
	}
	return p.database.do(ctx, "save progress", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return saveProgress(ctx, tx, list, outlooks > 0) })
	})
}

// AddSettled adds to the settled jobs of campaigns and destinations, or takes jobs out of them: those that are replayed.
func (a *Admin) AddSettled(ctx context.Context, list []delivery.Progress) error {
	return a.database.do(ctx, "", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return saveProgress(ctx, tx, list, false) })
	})
}

// saveProgress writes in the order of the keys, so that daemons that save at the same time cannot deadlock.
func saveProgress(ctx context.Context, tx pgx.Tx, list []delivery.Progress, outlook bool) error {
	sorted := slices.SortedFunc(slices.Values(list), func(a, b delivery.Progress) int {
		return cmp.Or(cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.Destination, b.Destination))
	})
	for _, table := range []progressTable{{"destination", "waiting", keepAnswers}, {"campaign", "backlog, retrying, in_flight, done_at", ""}} {
		rows := slices.DeleteFunc(slices.Clone(sorted), func(p delivery.Progress) bool { return (p.Campaign == "") != (table.of == "destination") })
		for part := range slices.Chunk(rows, progressBatch) {
			if _, err := tx.Exec(ctx, table.add(outlook), progressColumns(part)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// progressTable is a table of counts: of what, its columns of an outlook, and what is done with answers, if it has them.
type progressTable struct{ of, outlook, answers string }

// keepAnswers puts the answers before those that are kept.
var keepAnswers = fmt.Sprintf(`, answers = CASE WHEN excluded.answers = '[]' THEN p.answers ELSE (
        SELECT jsonb_agg(a ORDER BY (a->>'at')::timestamptz DESC) FROM (SELECT a FROM jsonb_array_elements(excluded.answers || p.answers) a
        ORDER BY (a->>'at')::timestamptz DESC LIMIT %d) newest) END`, delivery.KeptAnswers)

// add returns the statement that adds settled jobs, and replaces outlooks. It inserts no rows of zeros. A count is below zero while jobs are
// replayed whose end no daemon has saved yet.
func (t progressTable) add(outlook bool) string {
	columns, answers, told, some := strings.Split(t.outlook, ", "), "", "", ""
	if t.answers != "" {
		answers, told, some = ", answers", ", t.answers::jsonb", " OR t.answers <> '[]'"
	}
	statement := fmt.Sprintf(`
INSERT INTO pacer.%[1]s_progress AS p (%[1]s_id, delivered, dead, expired, cancelled, rejected, capped, %[2]s%[4]s)
SELECT c.id, t.delivered, t.dead, t.expired, t.cancelled, t.rejected, t.capped, %[2]s%[5]s
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::timestamptz[], $12::text[])
         AS t(id, delivered, dead, expired, cancelled, rejected, capped, %[3]s, retrying, in_flight, done_at, answers)
JOIN pacer.%[1]ss c ON c.id = t.id
WHERE t.delivered + t.dead + t.expired + t.cancelled + t.rejected + t.capped + %[3]s > 0
   OR EXISTS (SELECT FROM pacer.%[1]s_progress k WHERE k.%[1]s_id = t.id)%[6]s
ORDER BY c.id COLLATE "C"
ON CONFLICT (%[1]s_id) DO UPDATE
SET delivered = p.delivered + excluded.delivered, dead = p.dead + excluded.dead, expired = p.expired + excluded.expired,
    cancelled = p.cancelled + excluded.cancelled, rejected = p.rejected + excluded.rejected, capped = p.capped + excluded.capped, updated_at = now()`,
		t.of, t.outlook, columns[0], answers, told, some) + t.answers
	for _, column := range columns {
		if outlook {
			statement += ", " + column + " = excluded." + column
		}
	}
	return statement
}

// progressColumns converts progress to the arrays for unnest.
func progressColumns(list []delivery.Progress) []any {
	columns := []any{column(list, func(p delivery.Progress) string { return p.Campaign + p.Destination })}
	for _, o := range delivery.SettledOutcomes {
		columns = append(columns, column(list, func(p delivery.Progress) int64 { return p.Settled[o] }))
	}
	return append(columns,
		column(list, func(p delivery.Progress) int64 { return orZero(p.Outlook).Total() }),
		column(list, func(p delivery.Progress) int64 { return orZero(p.Outlook).Retrying }),
		column(list, func(p delivery.Progress) int64 { return orZero(p.Outlook).InFlight }),
		column(list, func(p delivery.Progress) *time.Time { return nullable(orZero(p.Outlook).DoneAt) }),
		column(list, func(p delivery.Progress) string {
			newest := append([]delivery.Answer{}, p.Answers...)
			slices.Reverse(newest)
			text, _ := json.Marshal(newest) // strings and times do not fail
			return string(text)
		}))
}

// SpreadCampaigns sets the rates of campaigns until their finish_by, in millionths of a unit per hour. Campaigns that do not exist any more,
// and those that another transaction changes, are skipped.
func (p *Postgres) SpreadCampaigns(ctx context.Context, rates map[string]int64) error {
	return p.database.do(ctx, "spread campaigns", func(ctx context.Context, pool *pgxpool.Pool) error {
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
	return p.loadSettled(ctx, `campaign_id, `+settledColumns+`
FROM pacer.campaign_progress p JOIN pacer.campaigns c ON c.id = p.campaign_id WHERE c.expected_total IS NOT NULL OR c.id = ANY ($1)`, others)
}

// LoadSettledOf returns the settled jobs, over all time, of destinations.
func (p *Postgres) LoadSettledOf(ctx context.Context, destinations []string) (map[string]delivery.Settled, error) {
	return p.loadSettled(ctx, `destination_id, `+settledColumns+` FROM pacer.destination_progress p WHERE destination_id = ANY ($1)`, destinations)
}

const settledColumns = `p.delivered, greatest(0, p.dead), greatest(0, p.expired), p.cancelled, p.rejected, p.capped`

func (p *Postgres) loadSettled(ctx context.Context, selected string, ids []string) (map[string]delivery.Settled, error) {
	all, id, s := map[string]delivery.Settled{}, "", delivery.Settled{}
	err := p.database.do(ctx, "load progress", func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, _ := pool.Query(ctx, "SELECT "+selected, ids)
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

// LoadOutlooks returns the outlooks that are stored, except those without a backlog and an end.
func (p *Postgres) LoadOutlooks(ctx context.Context) ([]delivery.Progress, error) {
	return list(ctx, p.database, "load progress", func(row pgx.CollectableRow) (of delivery.Progress, err error) {
		var at *time.Time
		var o delivery.Outlook
		err = row.Scan(&of.Campaign, &of.Destination, &o.Waiting, &o.Retrying, &o.InFlight, &at)
		o.DoneAt, of.Outlook = orZero(at), &o
		return of, err
	}, `
SELECT campaign_id, '', backlog - retrying - in_flight, retrying, in_flight, done_at FROM pacer.campaign_progress WHERE backlog <> 0 OR done_at IS NOT NULL
UNION ALL SELECT '', destination_id, waiting, 0, 0, NULL FROM pacer.destination_progress WHERE waiting <> 0`)
}
