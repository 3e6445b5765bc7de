package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// The ledger is a copy of the quota store's counts in the database. It reveals a loss of the store's data and restores its windows. It
// holds the epoch of each shard's data, the units that each daemon reserved in each minute, those that the store has counted, which
// replace them, and the ends of windows that began at their first use.

const (
	selectEpoch = `SELECT coalesce(max(incarnation), 0), coalesce(max(ahead), 0), coalesce(max(jumped_at), 0) FROM pacer.store_incarnations WHERE shard = $1`

	// stale finds the epochs of e that are not the recorded ones.
	stale = `NOT EXISTS (SELECT 1 FROM pacer.store_incarnations i WHERE i.shard = e.shard AND i.incarnation = e.incarnation)`

	// It comes after what was written, so that all was written under the epochs that it finds.
	selectInForce = `SELECT i.shard FROM pacer.store_incarnations i JOIN unnest($1::integer[], $2::bigint[]) AS e(shard, incarnation) USING (shard, incarnation) ORDER BY 1`
	// lockInForce keeps another epoch from being recorded before what was written is committed: a rebuild reads all of it.
	lockInForce = selectInForce + ` FOR SHARE OF i`

	// Rows are written in order, so that daemons that write at the same time cannot deadlock. (Locking the quotas
	// first would need the privilege to change them.)
	writeUsage = `
INSERT INTO pacer.quota_usage (quota_id, minute, node, units, incarnation)
SELECT u.quota, u.minute, $1, u.units, nullif(u.incarnation, 0)
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS u(quota, minute, units, incarnation)
JOIN pacer.quotas q ON q.id = u.quota
WHERE NOT EXISTS (SELECT 1 FROM unnest($6::integer[], $7::bigint[]) AS e(shard, incarnation) WHERE ` + stale + `)
ORDER BY u.quota, u.minute
ON CONFLICT (quota_id, minute, node) DO UPDATE SET units = excluded.units, incarnation = excluded.incarnation`

	// replaced finds the rows of u that a checkpoint has replaced; a daemon may write one again after that.
	replaced = `EXISTS (SELECT 1 FROM pacer.quota_checkpoints k WHERE k.quota_id = u.quota_id AND u.node <> ''
    AND k.incarnation = u.incarnation AND u.minute >= k.begun AND u.minute < k.at / 60000000)`

	// After a correction, a count says nothing of the units before it.
	selectCheckpoints = `
SELECT u.quota_id, coalesce(k.incarnation, 0), coalesce(k.since, 0), coalesce(k.at, 0), coalesce(k.counted_in, ''),
    coalesce(k.born, 0), coalesce(k.counted, 0), coalesce(k.begun, 0), u.first,
    CASE WHEN u.low = u.high AND (k.at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM pacer.campaign_changes c
        WHERE c.quota_id = u.quota_id AND c.operation = 'adjust' AND c."when" > now() - interval '1 hour')) THEN u.low ELSE 0 END,
    coalesce((SELECT max(b.minute) FROM pacer.quota_usage b WHERE b.quota_id = u.quota_id AND b.minute < u.first), 0)
FROM (SELECT quota_id, min(minute) AS first, min(coalesce(incarnation, 0)) AS low, max(coalesce(incarnation, 0)) AS high
    FROM pacer.quota_usage WHERE minute >= $1 GROUP BY quota_id HAVING bool_or(node <> '')) u
LEFT JOIN pacer.quota_checkpoints k USING (quota_id) ORDER BY u.quota_id COLLATE "C"`

	// A checkpoint follows the one that its writer has read, of the incarnation in force; others are dropped. Units that are written just
	// after the end of a minute belong to it. Rows that a daemon is writing are left for the next checkpoint.
	writeCheckpoints = `
WITH told AS (
    SELECT n.* FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
        $10::bigint[]) AS n(quota, since, at, counted_in, born, counted, begun, used)
    JOIN pacer.quotas q ON q.id = n.quota JOIN pacer.store_incarnations i ON i.shard = $1 AND i.incarnation = $2
), stored AS (
    INSERT INTO pacer.quota_checkpoints AS k (quota_id, incarnation, since, at, counted_in, born, counted, begun)
    SELECT quota, $2, since, at, counted_in, born, counted, begun FROM told ORDER BY quota
    ON CONFLICT (quota_id) DO UPDATE SET incarnation = excluded.incarnation, since = excluded.since, at = excluded.at,
        counted_in = excluded.counted_in, born = excluded.born, counted = excluded.counted, begun = excluded.begun
    WHERE k.at = excluded.since
    RETURNING quota_id
), gone AS (
    DELETE FROM pacer.quota_usage WHERE ctid = ANY (ARRAY(
        SELECT u.ctid FROM told n JOIN stored s ON s.quota_id = n.quota JOIN pacer.quota_usage u ON u.quota_id = n.quota
        WHERE u.minute >= n.begun AND u.minute < n.at / 60000000 AND u.node <> '' AND u.incarnation = $2
        ORDER BY u.quota_id, u.minute FOR UPDATE OF u SKIP LOCKED))
)
INSERT INTO pacer.quota_usage AS u (quota_id, minute, node, units)
SELECT n.quota, (n.at - 5000000) / 60000000, '', n.used FROM told n JOIN stored s ON s.quota_id = n.quota
WHERE n.used > 0 ORDER BY n.quota
ON CONFLICT (quota_id, minute, node) DO UPDATE SET units = u.units + excluded.units`

	writeAnchors = `
INSERT INTO pacer.quota_anchors AS a (quota_id, span, resets_at)
SELECT n.quota, n.span, max(n.resets_at)
FROM unnest($1::text[], $2::interval[], $3::timestamptz[]) AS n(quota, span, resets_at)
JOIN pacer.quotas q ON q.id = n.quota
GROUP BY n.quota, n.span ORDER BY n.quota, n.span
ON CONFLICT (quota_id, span) DO UPDATE SET resets_at = excluded.resets_at WHERE a.resets_at < excluded.resets_at`

	// Daemons that prune at the same time take different rows.
	pruneUsage = `
DELETE FROM pacer.quota_usage WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pacer.quota_usage WHERE minute < $1 ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// The rows of an hour become one, of its last minute.
	mergeUsage = `
WITH old AS (
    DELETE FROM pacer.quota_usage WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM pacer.quota_usage WHERE minute >= $1 AND minute < $2 AND (node <> '' OR minute % 60 <> 59)
        ORDER BY minute LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING quota_id, minute, node, units, incarnation
), merged AS (
    INSERT INTO pacer.quota_usage AS h (quota_id, minute, node, units)
    SELECT u.quota_id, u.minute / 60 * 60 + 59, '', least(sum(u.units), 9e15)::bigint FROM old u
    WHERE u.units > 0 AND NOT ` + replaced + `
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (quota_id, minute, node) DO UPDATE SET units = h.units + excluded.units
)
SELECT count(*), coalesce(max(minute), 0) FROM old`

	// pruneBatch is how many rows one statement prunes or merges.
	pruneBatch = 5000
)

// Epoch returns what is recorded of the shard's data, with epoch 0 if that is nothing.
func (p *Postgres) Epoch(ctx context.Context, shard int) (delivery.Incarnation, error) {
	what := fmt.Sprintf("read the incarnation of shard %d", shard)
	return read(ctx, p.database, queryTimeout, what, func(ctx context.Context, pool *pgxpool.Pool) (is delivery.Incarnation, err error) {
		err = pool.QueryRow(ctx, selectEpoch, shard).Scan(&is.Epoch, &is.Ahead, &is.JumpedAt)
		return is, err
	})
}

// ReplaceEpoch records the next epoch of the shard's data if the recorded one is still old (0: there is none). It
// returns the epoch recorded afterwards: next for the caller that won, and the winner's for all others. The cause is
// stored for operators.
func (p *Postgres) ReplaceEpoch(ctx context.Context, shard int, old int64, next delivery.Incarnation, cause string) (int64, error) {
	if shard < 0 || old < 0 || next.Epoch < 1 {
		return 0, invalid("shard %d: incarnation %d cannot follow %d; incarnations are greater than 0", shard, next.Epoch, old)
	}
	what := fmt.Sprintf("record the incarnation of shard %d", shard)
	return read(ctx, p.database, queryTimeout, what, func(ctx context.Context, pool *pgxpool.Pool) (inForce int64, err error) {
		// Each statement sees what was committed before it began, and the writing ones wait for other writers.
		batch := &pgx.Batch{}
		if old == 0 {
			batch.Queue(`INSERT INTO pacer.store_incarnations (shard, incarnation, cause, ahead, jumped_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (shard) DO NOTHING`, shard, next.Epoch, cause, next.Ahead, next.JumpedAt)
		} else {
			batch.Queue(`UPDATE pacer.store_incarnations SET incarnation = $3, since = now(), cause = $4, ahead = $5, jumped_at = $6
WHERE shard = $1 AND incarnation = $2`, shard, old, next.Epoch, cause, next.Ahead, next.JumpedAt)
		}
		batch.Queue(selectEpoch, shard).QueryRow(func(row pgx.Row) error { return row.Scan(&inForce, nil, nil) })
		err = pool.SendBatch(ctx, batch).Close()
		return inForce, err
	})
}

// WriteUsage sets the node's units of each quota and minute, and stores each anchor unless the known one is later. It takes one round
// trip and is atomic, and it is as durable when it returns as the server's synchronous_commit setting provides. Quotas that do not exist
// are skipped; of two entries for the same minute the last counts. It returns the shards whose recorded epoch differs from the page's.
// Their units may or may not have been written, and count as not written.
func (p *Postgres) WriteUsage(ctx context.Context, page delivery.UsagePage) (stale []int, err error) {
	if len(page.Usage)+len(page.Anchors)+len(page.Epochs) == 0 {
		return nil, nil
	}
	page.Usage = lastOfEach(page.Usage, func(a, b delivery.Usage) int {
		return cmp.Or(cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Minute, b.Minute))
	})
	return read(ctx, p.database, queryTimeout, "write the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) (stale []int, err error) {
		err = pool.SendBatch(ctx, ledgerBatch(&page, &stale)).Close()
		return stale, err
	})
}

// ledgerBatch holds the statements of one write.
func ledgerBatch(page *delivery.UsagePage, stale *[]int) *pgx.Batch {
	batch, usage, anchors := &pgx.Batch{}, page.Usage, page.Anchors
	shards := slices.Sorted(maps.Keys(page.Epochs))
	epochs := column(shards, func(shard int) int64 { return page.Epochs[shard] })
	if len(usage) > 0 {
		batch.Queue(writeUsage, page.Node,
			column(usage, func(u delivery.Usage) string { return u.Quota }),
			column(usage, func(u delivery.Usage) int64 { return u.Minute }),
			column(usage, func(u delivery.Usage) int64 { return u.Units }),
			column(usage, func(u delivery.Usage) int64 { return u.Epoch }), shards, epochs)
	}
	if len(anchors) > 0 {
		batch.Queue(writeAnchors,
			column(anchors, func(a delivery.Anchor) string { return a.Quota }),
			column(anchors, func(a delivery.Anchor) time.Duration { return a.Span }),
			column(anchors, func(a delivery.Anchor) time.Time { return time.UnixMicro(a.ResetAt) }))
	}
	if len(shards) > 0 {
		check := selectInForce
		if len(usage) > 0 {
			check = lockInForce
		}
		batch.Queue(check, shards, epochs).Query(func(rows pgx.Rows) error {
			inForce, err := pgx.CollectRows(rows, pgx.RowTo[int])
			*stale = slices.DeleteFunc(shards, func(shard int) bool { return slices.Contains(inForce, shard) })
			return err
		})
	}
	return batch
}

// Usage returns the units of the quotas in each minute from sinceMinute on (minutes since the Unix epoch), summed over
// all nodes, ordered by minute, then by quota. Minutes without units are left out. It reads one quota after the other,
// in pages, so that no statement takes long, however many months there are.
func (p *Postgres) Usage(ctx context.Context, quotas []string, sinceMinute int64) ([]delivery.Usage, error) {
	var usage []delivery.Usage
	for _, quota := range quotas {
		minutes, err := readUsage(quota, sinceMinute, noEnd, func(page usageReader) ([]delivery.Usage, error) {
			return read(ctx, p.database, queryTimeout, "read the usage of quota "+quota, page)
		})
		if err != nil {
			return nil, err
		}
		usage = append(usage, minutes...)
	}
	slices.SortFunc(usage, byMinute)
	return usage, nil
}

// byMinute orders usage by minute, then by quota.
func byMinute(a, b delivery.Usage) int {
	return cmp.Or(cmp.Compare(a.Minute, b.Minute), cmp.Compare(a.Quota, b.Quota))
}

const (
	// usagePage is the number of minutes that one statement reads, a week.
	usagePage = 7 * 24 * 60
	// noEnd is a minute after all others.
	noEnd = int64(1) << 60
)

// usageReader reads one page of usage.
type usageReader = func(context.Context, *pgxpool.Pool) ([]delivery.Usage, error)

// readUsage reads the minutes of the quota from since to before until; with runs the statement of each page.
func readUsage(quota string, since, until int64,
	with func(usageReader) ([]delivery.Usage, error)) (usage []delivery.Usage, err error) {
	for {
		page, err := with(func(ctx context.Context, pool *pgxpool.Pool) ([]delivery.Usage, error) {
			rows, _ := pool.Query(ctx, `
SELECT quota_id, minute, least(sum(units), 9e15)::bigint, 0::bigint FROM pacer.quota_usage u
WHERE quota_id = $1 AND minute >= $2 AND minute < $3 AND NOT `+replaced+`
GROUP BY quota_id, minute ORDER BY quota_id, minute LIMIT $4`, quota, since, until, usagePage)
			return pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.Usage])
		})
		usage = append(usage, page...)
		if err != nil || len(page) < usagePage {
			return usage, err
		}
		since = page[len(page)-1].Minute + 1
	}
}

// Anchors returns the recorded resets of windows of the quotas, ordered by quota, then by span.
func (p *Postgres) Anchors(ctx context.Context, quotas []string) ([]delivery.Anchor, error) {
	return read(ctx, p.database, queryTimeout, "read the anchors of quotas", func(ctx context.Context, pool *pgxpool.Pool) ([]delivery.Anchor, error) {
		rows, _ := pool.Query(ctx, `SELECT quota_id, span, resets_at FROM pacer.quota_anchors
WHERE quota_id = ANY ($1::text[]) ORDER BY quota_id COLLATE "C", span`, quotas)
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (delivery.Anchor, error) {
			var a delivery.Anchor
			var resetsAt time.Time
			err := row.Scan(&a.Quota, &a.Span, &resetsAt)
			a.ResetAt = resetsAt.UnixMicro()
			return a, err
		})
	})
}

// Checkpoints returns the last checkpoint of each quota with reserved units since sinceMinute that were not replaced yet, ordered by
// quota. Those that have none have only the name.
func (p *Postgres) Checkpoints(ctx context.Context, sinceMinute int64) ([]delivery.Checkpoint, error) {
	return read(ctx, p.database, queryTimeout, "read the checkpoints of quotas", func(ctx context.Context, pool *pgxpool.Pool) ([]delivery.Checkpoint, error) {
		rows, _ := pool.Query(ctx, selectCheckpoints, sinceMinute)
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c delivery.Checkpoint, err error) {
			err = row.Scan(&c.Quota, &c.Epoch, &c.Since, &c.At, &c.Window, &c.Born, &c.Counted, &c.Begun,
				&c.Rows.First, &c.Rows.Epoch, &c.Rows.Before)
			return c, err
		})
	})
}

// WriteCheckpoints records what the shard's store has counted: the units replace those that daemons reserved of the same
// data in the minutes between Begun and At. A checkpoint is dropped if epoch is not the recorded one, or if another one
// was written since Since.
func (p *Postgres) WriteCheckpoints(ctx context.Context, shard int, epoch int64, list []delivery.Checkpoint) error {
	numbers := func(field func(delivery.Checkpoint) int64) []int64 { return column(list, field) }
	return p.database.do(ctx, queryTimeout, "write checkpoints of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, writeCheckpoints, shard, epoch,
			column(list, func(c delivery.Checkpoint) string { return c.Quota }),
			numbers(func(c delivery.Checkpoint) int64 { return c.Since }),
			numbers(func(c delivery.Checkpoint) int64 { return c.At }),
			column(list, func(c delivery.Checkpoint) string { return c.Window }),
			numbers(func(c delivery.Checkpoint) int64 { return c.Born }),
			numbers(func(c delivery.Checkpoint) int64 { return c.Counted }),
			numbers(func(c delivery.Checkpoint) int64 { return c.Begun }),
			numbers(func(c delivery.Checkpoint) int64 { return c.Used }))
		return err
	})
}

// PruneUsage deletes the minutes before beforeMinute, and merges those before mergeBefore to hours, some thousand rows at
// a time, so that no statement takes long.
func (p *Postgres) PruneUsage(ctx context.Context, beforeMinute, mergeBefore int64) error {
	for since, merged := beforeMinute, pruneBatch; merged == pruneBatch; {
		err := p.database.do(ctx, queryTimeout, "merge the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
			return pool.QueryRow(ctx, mergeUsage, since, mergeBefore/60*60, pruneBatch).Scan(&merged, &since)
		})
		if err != nil {
			return err
		}
	}
	for {
		var pruned int64
		err := p.database.do(ctx, queryTimeout, "prune the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
			tag, err := pool.Exec(ctx, pruneUsage, beforeMinute, pruneBatch)
			pruned = tag.RowsAffected()
			return err
		})
		if err != nil || pruned < pruneBatch {
			return err
		}
	}
}
