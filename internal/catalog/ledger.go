package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// The ledger is a copy of the quota store's counts in the database. It reveals a loss of the store's data and restores its windows. It
// holds the epoch of each shard's data, what was taken of each quota in each minute and who took it, and the ends of windows that began at
// their first use.

const (
	selectEpoch = `SELECT coalesce(max(incarnation), 0), coalesce(max(ahead), 0), coalesce(max(jumped_at), 0) FROM pacer.store_incarnations WHERE shard = $1`

	// The lock keeps another epoch from being recorded before this is committed: a rebuild reads all of it.
	join = `
WITH told AS (
    SELECT e.* FROM unnest($2::integer[], $3::bigint[], $4::bigint[]) AS e(shard, incarnation, at)
    JOIN pacer.store_incarnations i USING (shard, incarnation) ORDER BY e.shard FOR SHARE OF i
), joined AS (
    INSERT INTO pacer.store_takers AS k (shard, node, incarnation, since, at) SELECT shard, $1, incarnation, at, at FROM told
    ON CONFLICT (shard, node) DO UPDATE SET incarnation = excluded.incarnation, at = excluded.at,
        since = CASE WHEN k.incarnation = excluded.incarnation THEN k.since ELSE excluded.at END
)
SELECT t.shard, coalesce(w.at, 0) FROM told t
LEFT JOIN pacer.store_takers w ON w.shard = t.shard AND w.incarnation = t.incarnation AND w.node = ''`

	selectTakers = `
SELECT k.node, k.shard, k.incarnation, greatest(k.since, w.at), k.at FROM pacer.store_takers k
LEFT JOIN pacer.store_takers w ON w.shard = k.shard AND w.incarnation = k.incarnation AND w.node = ''
WHERE k.shard = $1 AND k.node <> '' ORDER BY k.node`

	leave = `
WITH gone AS (
    DELETE FROM pacer.store_takers k USING pacer.store_incarnations i
    WHERE k.shard = $1 AND k.node = ANY ($2::text[]) AND i.shard = k.shard AND (i.incarnation > k.incarnation OR cardinality($3::text[]) = 0)
    RETURNING k.node, k.incarnation
)
INSERT INTO pacer.quota_usage AS u (quota_id, minute, node, units, incarnation)
SELECT n.quota, n.minute, min(g.node), sum(n.units), min(g.incarnation)
FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS n(quota, minute, units) JOIN pacer.quotas q ON q.id = n.quota
CROSS JOIN (SELECT * FROM gone ORDER BY node LIMIT 1) g GROUP BY 1, 2 HAVING sum(n.units) > 0 ORDER BY 1, 2
ON CONFLICT (quota_id, minute, node) DO UPDATE SET units = u.units + excluded.units, incarnation = excluded.incarnation`

	// The same count, told again or by several, is added once: only what it has grown by, and nothing if it is older than what is known. Of
	// a quota that is new here, the windows decide: it may have had none that are kept until now. They also decide after the database was
	// restored: what was written of the data before these may be missing, and then their windows hold more than the minutes of the ledger.
	// A quota whose row is locked is left for the next time. Rows are written in order, so that daemons that write at the same time cannot
	// deadlock. Rows of daemons that stopped before this time are not needed any more. Nor are those of earlier data, which a restored
	// database may have again: their daemons were waited for when these data were put in place.
	writeTaken = `
WITH force AS MATERIALIZED (
    SELECT cause = ANY ($10::text[]) AS restored, $11 <= coalesce((SELECT at FROM pacer.store_takers WHERE shard = $1 AND node = '' AND incarnation = $2), 0) AS whole
    FROM pacer.store_incarnations WHERE shard = $1 AND incarnation = $2 FOR SHARE
), told AS MATERIALIZED (
    SELECT n.*, k.quota_id IS NOT NULL AS known, force.restored, CASE WHEN force.restored AND k.incarnation IS DISTINCT FROM $2 THEN held - coalesce((
        SELECT sum(units) FROM pacer.quota_usage u WHERE u.quota_id = n.quota AND minute >= n.since), 0) ELSE 0 END AS missing
    FROM force, unnest($4::text[], $5::bigint[], $6::bigint[], $8::bigint[], $9::bigint[]) AS n(quota, born, units, held, since)
    JOIN pacer.quotas q ON q.id = n.quota LEFT JOIN pacer.quota_counts k ON k.quota_id = n.quota
), locked AS MATERIALIZED (
    SELECT quota_id FROM pacer.quota_counts WHERE quota_id = ANY ($4::text[]) ORDER BY quota_id FOR UPDATE SKIP LOCKED
), free AS MATERIALIZED (
    SELECT * FROM told WHERE quota IN (SELECT quota_id FROM locked) OR quota NOT IN (SELECT quota_id FROM pacer.quota_counts)
), counted AS (
    INSERT INTO pacer.quota_counts AS k (quota_id, incarnation, born, units, at, added)
    SELECT quota, $2, born, units, $3, greatest(missing, CASE WHEN known THEN units ELSE least(units, held) END) FROM free ORDER BY quota
    ON CONFLICT (quota_id) DO UPDATE SET incarnation = excluded.incarnation, born = excluded.born, at = excluded.at,
        units = CASE WHEN k.incarnation = excluded.incarnation AND k.born = excluded.born THEN greatest(k.units, excluded.units) ELSE excluded.units END,
        added = CASE WHEN k.incarnation = excluded.incarnation AND k.born = excluded.born THEN greatest(excluded.units - k.units, 0) ELSE excluded.added END
    WHERE k.incarnation <> excluded.incarnation OR k.at < excluded.at
    RETURNING quota_id, added
), used AS (
    INSERT INTO pacer.quota_usage AS u (quota_id, minute, node, units)
    SELECT quota_id, $3 / 60000000, '', added FROM counted WHERE added > 0 ORDER BY quota_id
    ON CONFLICT (quota_id, minute, node) DO UPDATE SET units = u.units + excluded.units RETURNING 1
), written AS ( -- after those, since it counts them: each statement locks in this order
    INSERT INTO pacer.store_takers AS k (shard, node, incarnation, since, at)
    SELECT $1, '', $2, $3, $3 FROM force WHERE whole AND (SELECT count(*) FROM free) = (SELECT count(*) FROM told) AND (SELECT count(*) FROM used) >= 0
    ON CONFLICT (shard, node) DO UPDATE SET incarnation = excluded.incarnation, at = excluded.at
    WHERE k.incarnation <> excluded.incarnation OR k.at < excluded.at RETURNING 1
), stopped AS (
    DELETE FROM pacer.store_takers WHERE shard = $1 AND node <> '' AND (incarnation < $2 OR incarnation = $2 AND at < $3 - $7)
        AND EXISTS (SELECT FROM written)
)
SELECT EXISTS (SELECT FROM force WHERE whole) AND (SELECT count(*) FROM free) = (SELECT count(*) FROM told)`

	writeAnchors = `
INSERT INTO pacer.quota_anchors AS a (quota_id, span, resets_at)
SELECT n.quota, n.span, max(n.resets_at)
FROM unnest($1::text[], $2::interval[], $3::timestamptz[]) AS n(quota, span, resets_at)
JOIN pacer.quotas q ON q.id = n.quota
GROUP BY n.quota, n.span ORDER BY n.quota, n.span
ON CONFLICT (quota_id, span) DO UPDATE SET resets_at = excluded.resets_at WHERE a.resets_at < excluded.resets_at`

	// Daemons that prune at the same time take different rows.
	deleteUsage = `
DELETE FROM pacer.quota_usage WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pacer.quota_usage WHERE minute < $1 ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// The rows of an hour become one, of its last minute.
	mergeUsage = `
WITH old AS (
    DELETE FROM pacer.quota_usage WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM pacer.quota_usage WHERE minute >= $1 AND minute < $2 AND (node <> '' OR minute % 60 <> 59)
        ORDER BY minute LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING quota_id, minute, units
), merged AS (
    INSERT INTO pacer.quota_usage AS h (quota_id, minute, node, units)
    SELECT u.quota_id, u.minute / 60 * 60 + 59, '', least(sum(u.units), 9e15)::bigint FROM old u
    WHERE u.units > 0
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (quota_id, minute, node) DO UPDATE SET units = h.units + excluded.units
)
SELECT count(*), coalesce(max(minute), 0) FROM old`

	// pruneBatch is how many rows one statement prunes or merges.
	pruneBatch = 5000
	// minuteMicros is a minute, and countedLate how long after its use a unit is in the ledger at most, in microseconds.
	minuteMicros, countedLate = 60_000_000, 15_000_000
	// takersKept is how long a daemon may go on to take after it has joined last.
	takersKept = 150 * time.Second
)

// Epoch returns what is recorded of the shard's data, with epoch 0 if that is nothing.
func (p *Postgres) Epoch(ctx context.Context, shard int) (delivery.Incarnation, error) {
	what := fmt.Sprintf("read the incarnation of shard %d", shard)
	return read(ctx, p.database, what, func(ctx context.Context, pool *pgxpool.Pool) (is delivery.Incarnation, err error) {
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
	return read(ctx, p.database, what, func(ctx context.Context, pool *pgxpool.Pool) (inForce int64, err error) {
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

// Join records that the node takes from the data of these epochs, at these times on the store's clock. It returns, for each shard whose
// recorded epoch is the same, up to when the ledger holds what was taken, 0 if that is unknown. Others are not recorded.
func (p *Postgres) Join(ctx context.Context, node string, as []delivery.Taker) (written map[int]int64, err error) {
	written = map[int]int64{}
	if len(as) == 0 {
		return written, nil
	}
	err = p.database.do(ctx, "join the usage ledger", func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, _ := pool.Query(ctx, join, node, column(as, func(a delivery.Taker) int { return a.Shard }),
			column(as, func(a delivery.Taker) int64 { return a.Epoch }), column(as, func(a delivery.Taker) int64 { return a.At }))
		var shard int
		var until int64
		_, err := pgx.ForEachRow(rows, []any{&shard, &until}, func() error {
			written[shard] = until
			return nil
		})
		return err
	})
	return written, err
}

// Takers returns the daemons that take from the shard's data, or did and have not left, ordered by name.
func (p *Postgres) Takers(ctx context.Context, shard int) ([]delivery.Taker, error) {
	return list(ctx, p.database, "read who takes from a shard", pgx.RowToStructByPos[delivery.Taker], selectTakers, shard)
}

// Leave removes nodes from a shard's takers, and adds usage under the name of the first. With usage, only those leave that took from an
// epoch before the recorded one. If none does, nothing is added, so that it can be repeated.
func (p *Postgres) Leave(ctx context.Context, shard int, nodes []string, usage []delivery.Usage) error {
	return p.database.do(ctx, "leave the usage ledger", func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, leave, shard, nodes, column(usage, func(u delivery.Usage) string { return u.Quota }),
			column(usage, func(u delivery.Usage) int64 { return u.Minute }), column(usage, func(u delivery.Usage) int64 { return u.Units }))
		return err
	})
}

// WriteTaken adds what each quota was taken since it was written last, to the minute of at, a time of the store's clock, and keeps the later
// of each anchor and the known one. Of a quota that was never written, it adds what its windows count. The list has the quotas whose counts
// changed after since, a time of the last write, or all with since 0. It is atomic, and as durable when it returns as the server's
// synchronous_commit setting provides. Quotas that do not exist are skipped. It returns false if epoch is not the recorded one, when no units
// are written, if a quota's row is locked, or if the ledger lacks something from before since.
func (p *Postgres) WriteTaken(ctx context.Context, shard int, epoch, since, at int64, list []delivery.Taken, anchors []delivery.Anchor) (complete bool, err error) {
	return read(ctx, p.database, "write the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) (complete bool, err error) {
		batch := &pgx.Batch{}
		batch.Queue(writeTaken, shard, epoch, at, column(list, func(t delivery.Taken) string { return t.Quota }),
			column(list, func(t delivery.Taken) int64 { return t.Born }), column(list, func(t delivery.Taken) int64 { return t.Units }),
			takersKept.Microseconds(), column(list, func(t delivery.Taken) int64 { return t.Held }),
			column(list, func(t delivery.Taken) int64 { return (t.Since+countedLate)/minuteMicros + 1 }), []string{delivery.CauseFirst, delivery.CauseRestored}, since).QueryRow(func(row pgx.Row) error { return row.Scan(&complete) })
		if len(anchors) > 0 {
			batch.Queue(writeAnchors,
				column(anchors, func(a delivery.Anchor) string { return a.Quota }),
				column(anchors, func(a delivery.Anchor) time.Duration { return a.Span }),
				column(anchors, func(a delivery.Anchor) time.Time { return time.UnixMicro(a.ResetAt) }))
		}
		err = pool.SendBatch(ctx, batch).Close()
		return complete, err
	})
}

// Usage returns the units of the quotas in each minute from sinceMinute on (minutes since the Unix epoch), summed, ordered by minute, then by quota. Minutes without units are left out. It reads one quota after the other,
// in pages, so that no statement takes long, however many months there are.
func (p *Postgres) Usage(ctx context.Context, quotas []string, sinceMinute int64) ([]delivery.Usage, error) {
	var usage []delivery.Usage
	for _, quota := range quotas {
		minutes, err := p.database.usage(ctx, quota, sinceMinute, noEnd)
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

// usage reads the minutes of the quota from since to before until.
func (d *database) usage(ctx context.Context, quota string, since, until int64) (usage []delivery.Usage, err error) {
	for {
		page, err := list(ctx, d, "read the usage of quota "+quota, pgx.RowToStructByPos[delivery.Usage], `
SELECT quota_id, minute, least(sum(units), 9e15)::bigint FROM pacer.quota_usage
WHERE quota_id = $1 AND minute >= $2 AND minute < $3
GROUP BY quota_id, minute ORDER BY quota_id, minute LIMIT $4`, quota, since, until, usagePage)
		usage = append(usage, page...)
		if err != nil || len(page) < usagePage {
			return usage, err
		}
		since = page[len(page)-1].Minute + 1
	}
}

// Anchors returns the recorded resets of windows of the quotas, ordered by quota, then by span.
func (p *Postgres) Anchors(ctx context.Context, quotas []string) ([]delivery.Anchor, error) {
	return list(ctx, p.database, "read the anchors of quotas", func(row pgx.CollectableRow) (a delivery.Anchor, err error) {
		var resetsAt time.Time
		err = row.Scan(&a.Quota, &a.Span, &resetsAt)
		a.ResetAt = resetsAt.UnixMicro()
		return a, err
	}, `SELECT quota_id, span, resets_at FROM pacer.quota_anchors WHERE quota_id = ANY ($1::text[]) ORDER BY quota_id COLLATE "C", span`, quotas)
}

// usageKept is for how long use is kept at least, however short the windows are, since people look back at it.
const usageKept = 31 * 24 * time.Hour

// PruneUsage deletes the minutes that no window needs any more, and merges those before the last day to hours. They are as old as the newest
// one says, or now if that is earlier: the store's clock may be another one, and may have jumped.
func (p *Postgres) PruneUsage(ctx context.Context, now time.Time) error {
	newest, longest := int64(0), int64(0)
	err := p.database.do(ctx, "read the age of the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, `SELECT coalesce(max(minute), 0), (
	SELECT coalesce(extract(epoch FROM max(span)), 0)::bigint FROM pacer.quota_windows) FROM pacer.quota_usage`).Scan(&newest, &longest)
	})
	if err != nil {
		return err
	}
	newest = min(newest, minuteOf(now))
	kept := max(time.Duration(longest)*time.Second+24*time.Hour, usageKept)
	return p.pruneUsage(ctx, newest-int64(kept/time.Minute), newest-int64(delivery.UsageKeptApart/time.Minute))
}

// pruneUsage deletes the minutes before beforeMinute, and merges those before mergeBefore to hours, some thousand rows at
// a time, so that no statement takes long.
func (p *Postgres) pruneUsage(ctx context.Context, beforeMinute, mergeBefore int64) error {
	for since, merged := beforeMinute, pruneBatch; merged == pruneBatch; {
		err := p.database.do(ctx, "merge the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
			return pool.QueryRow(ctx, mergeUsage, since, mergeBefore/60*60, pruneBatch).Scan(&merged, &since)
		})
		if err != nil {
			return err
		}
	}
	for {
		var pruned int64
		err := p.database.do(ctx, "prune the usage of quotas", func(ctx context.Context, pool *pgxpool.Pool) error {
			tag, err := pool.Exec(ctx, deleteUsage, beforeMinute, pruneBatch)
			pruned = tag.RowsAffected()
			return err
		})
		if err != nil || pruned < pruneBatch {
			return err
		}
	}
}
