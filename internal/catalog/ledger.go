package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// The ledger is what daemons keep in the database about the counts of the quota store, so that a store that has lost
// them is noticed, and its windows can be put back: which incarnation of each shard's data is in force, how many units
// each daemon used or reserved in each minute, and when windows end that began at their first use.

const (
	// Rows are written in order, so that daemons that write at the same time cannot block each other for good. (Locking
	// the quotas first would take a right to change them.)
	writeUsage = `
INSERT INTO pacer.quota_usage (quota_id, minute, node, units)
SELECT u.quota, u.minute, $1, u.units
FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS u(quota, minute, units) JOIN pacer.quotas q ON q.id = u.quota
ORDER BY u.quota, u.minute
ON CONFLICT (quota_id, minute, node) DO UPDATE SET units = excluded.units`

	writeAnchors = `
INSERT INTO pacer.quota_anchors AS a (quota_id, span, resets_at)
SELECT n.quota, n.span, max(n.resets_at)
FROM unnest($1::text[], $2::interval[], $3::timestamptz[]) AS n(quota, span, resets_at)
JOIN pacer.quotas q ON q.id = n.quota
GROUP BY n.quota, n.span ORDER BY n.quota, n.span
ON CONFLICT (quota_id, span) DO UPDATE SET resets_at = excluded.resets_at WHERE a.resets_at < excluded.resets_at`

	// Of several daemons that prune at once, each takes other rows.
	pruneUsage = `
DELETE FROM pacer.quota_usage WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pacer.quota_usage WHERE minute < $1 ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// pruneBatch is how many rows one statement prunes.
	pruneBatch = 5000

	// writeAttempts bounds how often a write is repeated because quotas were deleted while it went on.
	writeAttempts = 5
)

// Incarnation is the recorded incarnation of the shard's data, 0 when none is.
func (p *Postgres) Incarnation(ctx context.Context, shard int) (incarnation int64, err error) {
	err = p.ledger(ctx, fmt.Sprintf("read the incarnation of shard %d", shard), func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, `SELECT coalesce(max(incarnation), 0) FROM pacer.store_incarnations WHERE shard = $1`,
			shard).Scan(&incarnation)
	})
	return incarnation, err
}

// ReplaceIncarnation records the next incarnation of the shard's data, provided that the recorded one is still old (0:
// none is). It returns the one in force afterwards: next for the caller that won, and what another recorded for all
// others. The cause is for people.
func (p *Postgres) ReplaceIncarnation(ctx context.Context, shard int, old, next int64, cause string) (inForce int64, err error) {
	if err := checkIncarnation(shard, old, next); err != nil {
		return 0, err
	}
	err = p.ledger(ctx, fmt.Sprintf("record the incarnation of shard %d", shard), func(ctx context.Context, pool *pgxpool.Pool) error {
		// Each statement sees what was committed before it began, and the writing ones wait for whoever is writing.
		batch := &pgx.Batch{}
		if old == 0 {
			batch.Queue(`INSERT INTO pacer.store_incarnations (shard, incarnation, cause) VALUES ($1, $2, $3)
ON CONFLICT (shard) DO NOTHING`, shard, next, cause)
		} else {
			batch.Queue(`UPDATE pacer.store_incarnations SET incarnation = $3, since = now(), cause = $4
WHERE shard = $1 AND incarnation = $2`, shard, old, next, cause)
		}
		batch.Queue(`SELECT coalesce(max(incarnation), 0) FROM pacer.store_incarnations WHERE shard = $1`, shard).
			QueryRow(func(row pgx.Row) error { return row.Scan(&inForce) })
		return pool.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, err
	}
	return inForce, nil
}

// checkIncarnation refuses what neither catalog can keep.
func checkIncarnation(shard int, old, next int64) error {
	if shard < 0 || old < 0 || next < 1 {
		return invalid("shard %d: incarnation %d cannot follow %d; incarnations are greater than 0", shard, next, old)
	}
	return nil
}

// WriteUsage sets this node's units of each quota and minute, and notes the later of each anchor and the known one. It
// is one round trip, takes effect as a whole, and is as durable when it returns as the server's synchronous_commit
// makes it. Quotas that do not exist are passed over; of two units for the same minute the last counts.
func (p *Postgres) WriteUsage(ctx context.Context, node string, usage []delivery.Usage, anchors []delivery.Anchor) error {
	if len(usage)+len(anchors) == 0 {
		return nil
	}
	usage = sortedUsage(usage)
	return p.ledger(ctx, "write the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
		for attempt := 1; ; attempt++ {
			err := pool.SendBatch(ctx, ledgerBatch(node, usage, anchors)).Close()
			var server *pgconn.PgError
			if !errors.As(err, &server) || server.Code != "23503" || attempt == writeAttempts {
				return err
			}
			// A quota was there when it was looked up and is deleted now; the next look finds it gone.
		}
	})
}

// ledgerBatch holds the statements of one write.
func ledgerBatch(node string, usage []delivery.Usage, anchors []delivery.Anchor) *pgx.Batch {
	batch := &pgx.Batch{}
	if len(usage) > 0 {
		quotas, minutes, units := usageColumns(usage)
		batch.Queue(writeUsage, node, quotas, minutes, units)
	}
	if len(anchors) > 0 {
		quotas, spans, resets := anchorColumns(anchors)
		batch.Queue(writeAnchors, quotas, spans, resets)
	}
	return batch
}

// Usage returns the units of the quotas in each minute from sinceMinute on, summed over all nodes; by minute, then by
// quota. Minutes without any are left out. It reads one quota after the other, in pages, so that no statement is long
// however many months there are.
func (p *Postgres) Usage(ctx context.Context, quotas []string, sinceMinute int64) ([]delivery.Usage, error) {
	var usage []delivery.Usage
	for _, quota := range quotas {
		minutes, err := readUsage(quota, sinceMinute, noEnd, func(read func(context.Context, *pgxpool.Pool) error) error {
			return p.ledger(ctx, "read the usage of quota "+quota, read)
		})
		if err != nil {
			return nil, err
		}
		usage = append(usage, minutes...)
	}
	slices.SortFunc(usage, func(a, b delivery.Usage) int {
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), cmp.Compare(a.Quota, b.Quota))
	})
	return usage, nil
}

const (
	// usagePage is how many minutes one statement reads, a week of them.
	usagePage = 7 * 24 * 60
	// noEnd is a minute after all others.
	noEnd = int64(1) << 60
)

// readUsage reads the minutes of the quota from since to before until; with runs the statement for each page.
func readUsage(quota string, since, until int64,
	with func(func(context.Context, *pgxpool.Pool) error) error) (usage []delivery.Usage, err error) {
	for {
		var page []delivery.Usage
		err := with(func(ctx context.Context, pool *pgxpool.Pool) error {
			rows, err := pool.Query(ctx, `
SELECT quota_id, minute, least(sum(units), 9e15)::bigint FROM pacer.quota_usage
WHERE quota_id = $1 AND minute >= $2 AND minute < $3
GROUP BY quota_id, minute ORDER BY quota_id, minute LIMIT $4`, quota, since, until, usagePage)
			if err != nil {
				return err
			}
			page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.Usage])
			return err
		})
		usage = append(usage, page...)
		if err != nil || len(page) < usagePage {
			return usage, err
		}
		since = page[len(page)-1].Minute + 1
	}
}

// Anchors returns the resets that were noted for windows of the quotas, by quota, then by span.
func (p *Postgres) Anchors(ctx context.Context, quotas []string) (anchors []delivery.Anchor, err error) {
	err = p.ledger(ctx, "read the anchors of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, err := pool.Query(ctx, `SELECT quota_id, span, resets_at FROM pacer.quota_anchors
WHERE quota_id = ANY ($1::text[]) ORDER BY quota_id COLLATE "C", span`, quotas)
		if err != nil {
			return err
		}
		anchors, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (delivery.Anchor, error) {
			var a delivery.Anchor
			var resetsAt time.Time
			err := row.Scan(&a.Quota, &a.Span, &resetsAt)
			a.ResetAt = resetsAt.UnixMicro()
			return a, err
		})
		return err
	})
	return anchors, err
}

// PruneUsage forgets the minutes before the given one, some thousand rows at a time, so that no statement is long.
func (p *Postgres) PruneUsage(ctx context.Context, beforeMinute int64) error {
	for {
		var pruned int64
		err := p.ledger(ctx, "prune the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
			tag, err := pool.Exec(ctx, pruneUsage, beforeMinute, pruneBatch)
			pruned = tag.RowsAffected()
			return err
		})
		if err != nil || pruned < pruneBatch {
			return err
		}
	}
}

// ledger runs one operation within the time that operations may take, and says in its error what it was.
func (p *Postgres) ledger(ctx context.Context, what string, operate func(context.Context, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err == nil {
		err = explain(operate(ctx, pool))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// sortedUsage orders a copy by quota and minute, and keeps the last of each.
func sortedUsage(usage []delivery.Usage) []delivery.Usage {
	sorted := slices.Clone(usage)
	compare := func(a, b delivery.Usage) int {
		return cmp.Or(cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Minute, b.Minute))
	}
	slices.SortStableFunc(sorted, compare)
	kept := sorted[:0]
	for i, u := range sorted {
		if i+1 == len(sorted) || compare(u, sorted[i+1]) != 0 {
			kept = append(kept, u)
		}
	}
	return kept
}

// usageColumns turns usage into the arrays that unnest takes.
func usageColumns(usage []delivery.Usage) (quotas []string, minutes, units []int64) {
	for _, u := range usage {
		quotas = append(quotas, u.Quota)
		minutes = append(minutes, u.Minute)
		units = append(units, u.Units)
	}
	return quotas, minutes, units
}

// anchorColumns turns anchors into the arrays that unnest takes.
func anchorColumns(anchors []delivery.Anchor) (quotas []string, spans []time.Duration, resets []time.Time) {
	for _, a := range anchors {
		quotas = append(quotas, a.Quota)
		spans = append(spans, a.Span)
		resets = append(resets, time.UnixMicro(a.ResetAt))
	}
	return quotas, spans, resets
}
