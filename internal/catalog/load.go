package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// The queries return durations in microseconds, bounded so that no interval overflows, and a rate as text, so that no
// digit is lost. Infinite instants, which the triggers refuse, are read as null.
const (
	// A plan that reads every row is so costly that the server would compile it: 20 ms for a query of less than one.
	tunePlans = `SELECT set_config('jit', 'off', true)`

	selectStore = `SELECT removed, cluster_id, group_id, topic_prefix, shards FROM pacer.revision, pacer.store`

	// selectGiven reads the last revision that was given out, if the user may see it.
	selectGiven = `SELECT last_value FROM pg_sequences WHERE schemaname = 'pacer' AND sequencename = 'revisions'`

	// campaignTimes are the durations and the instants of a campaign.
	campaignTimes = `least(greatest(extract(epoch FROM c.send_per) * 1000000, -1), 9e15)::bigint,
       least(greatest(extract(epoch FROM coalesce(c.job_ttl, '0')) * 1000000, -1), 9e15)::bigint,
       CASE WHEN isfinite(c.starts_at) THEN c.starts_at END, CASE WHEN isfinite(c.ends_at) THEN c.ends_at END,
       CASE WHEN isfinite(c.ramp_since) THEN c.ramp_since END, CASE WHEN isfinite(c.paused_until) THEN c.paused_until END,
       CASE WHEN isfinite(c.finish_by) THEN c.finish_by END`

	selectCampaigns = `
SELECT c.id, c.revision, trim_scale(c.send_rate)::text, c.burst, c.status, coalesce(c.sink, ''), c.priority_weight, c.max_in_flight, c.overflow,
       coalesce(c.expected_total, 0), c.active_hours::text, c.time_zone, c.ramp::text,
       ARRAY(SELECT l.quota_id FROM pacer.campaign_quotas l WHERE l.campaign_id = c.id ORDER BY l.quota_id COLLATE "C"),
       coalesce(c.time_zone_missing, ''), coalesce(c.avoid_minutes, ''), coalesce(c.finish_rate, 0),
       c.revision - coalesce(c.set_revision, c.revision),
       ` + campaignTimes + `
FROM pacer.campaigns c WHERE c.revision > $1`

	// selectQuota has the columns of scanQuota; the windows are in the form of delivery.Window.
	selectQuota = `
SELECT q.id, q.revision, q.on_store_failure, q.mode, q.spend, q.unit, 100 - q.rollout::bigint, q.shard,
       coalesce(q.per, ''), CASE WHEN q.max_wait IS NULL THEN -1 ELSE least(extract(epoch FROM q.max_wait) * 1000000, 9e15) END::bigint,
       q.keyless = 'pass', q.count = 'deliveries',
       (SELECT jsonb_agg(jsonb_build_object('span', least(greatest(extract(epoch FROM w.span) * 1000000, -1), 9e15)::bigint * 1000,
            'limit', w.max_units, 'algorithm', w.algorithm, 'anchor', w.anchor) ORDER BY w.span)
        FROM pacer.quota_windows w WHERE w.quota_id = q.id)`

	// keyRows is what keyRowsOf reads. A hold that never ends lasts until a year that can be written.
	keyRows = `jsonb_object_agg(k.key, jsonb_build_object('windows', k.windows,
            'held_until', CASE WHEN k.held_until > to_timestamp(0) THEN least(k.held_until, '9999-01-01 00:00Z') END))::text`

	selectQuotas = selectQuota + `, (SELECT ` + keyRows + ` FROM pacer.quota_keys k WHERE k.quota_id = q.id AND q.per IS NOT NULL)
FROM pacer.quotas q WHERE q.revision > $1`

	// A shard has one row, whose time is changed when its data is another. The first data took the place of none.
	selectStores = `SELECT shard, since FROM pacer.store_incarnations WHERE isfinite(since) AND cause <> 'the first'`

	// everything is a revision below all others.
	everything int64 = -1
)

// load brings the state up to date in one consistent read and publishes it.
func (p *Postgres) load(ctx context.Context, all bool) error {
	started := time.Now()
	var changed, full bool
	err := p.database.do(ctx, "", func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		p.resume(ctx, pool)
		changed, full, err = p.read(ctx, pool, all)
		return err
	})
	if err != nil {
		return err
	}
	kind := loadIncremental
	if full {
		kind = loadFull
		p.lastFull = started
	}
	p.metrics.loads[kind].Inc()
	p.metrics.seconds.Observe(time.Since(started).Seconds())
	p.metrics.loadedAt.SetToCurrentTime()
	p.publishState(changed, started)
	return nil
}

// publishState publishes the state as of started. Without a change it only moves LoadedAt: a campaign that is not in memory did not exist
// at that time.
func (p *Postgres) publishState(changed bool, started time.Time) {
	previous := p.Snapshot()
	if !changed && previous != nil {
		same := *previous
		same.LoadedAt, same.Stores, same.Installation = started, p.state.stores, p.state.installation
		p.current.Store(&same) // wakes no subscriber
		return
	}
	if p.state.moved {
		p.countEndpoints()
	}
	next := p.state.snapshot(started)
	if previous == nil {
		previous = &delivery.Snapshot{}
	}
	next.Revision = max(next.Revision, previous.Revision)
	for id := range next.Changed(previous) {
		campaign := next.Campaigns[id]
		if campaign == nil || campaign.Invalid == "" && p.canSend(campaign) {
			delete(p.invalid, id)
			continue
		}
		p.invalid[id] = true
		known := previous.Campaign(id)
		if campaign.Invalid != "" && (known == nil || known.Revision != campaign.Revision || known.Invalid != campaign.Invalid) {
			p.options.Logger.Error("campaign is held: its row cannot be used",
				"campaign", id, "reason", campaign.Invalid, "revision", campaign.Revision)
		} // of one without a sink the pacer says so
	}
	p.metrics.invalid.Set(float64(len(p.invalid)))
	p.metrics.campaigns.Set(float64(len(next.Campaigns)))
	p.metrics.revision.Set(float64(next.Revision))
	p.publish(next)
}

// countEndpoints counts the destinations by their state.
func (p *Postgres) countEndpoints() {
	var count [len(delivery.DestinationStates)]int
	for _, entry := range p.state.endpoints {
		count[entry.row.State()]++
	}
	for state, gauge := range p.metrics.endpoints {
		gauge.Set(float64(count[state]))
	}
}

// canSend reports whether a campaign whose jobs are to be sent has a sink.
func (p *Postgres) canSend(c *delivery.Campaign) bool {
	settles := c.Status != delivery.StatusActive && c.Status != delivery.StatusPaused
	return settles || p.options.HasSink == nil || p.options.HasSink(c.Sink)
}

// read updates p.state from one snapshot of the database. After an error the state is unchanged.
func (p *Postgres) read(ctx context.Context, pool *pgxpool.Pool, all bool) (changed, full bool, err error) {
	if all {
		if err := checkSchema(ctx, pool); err != nil {
			return false, false, err
		}
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		full = all
		since := p.state.revision
		if full {
			since = everything
		}
		d, err := p.state.readDelta(ctx, tx, since)
		if err == nil && !full && d.removed != p.state.removed {
			// Rows were removed, and no revision says which.
			full = true
			d, err = p.state.readDelta(ctx, tx, everything)
		}
		if err != nil {
			return err
		}
		newest, remedy := max(d.revision(), d.removed), "run pacer migrate catch-up"
		if full && newest < p.state.revision {
			p.options.Logger.Error("the database is older than what was read of it, as after a restore from a backup: changes of its campaigns and quotas "+
				"do not act", "revision", newest, "seen", p.state.revision, "remedy", remedy+", and compare rates, quotas and states with what they should be")
		}
		if d.given != nil && *d.given < newest {
			p.options.Logger.Error("the sequence pacer.revisions is behind the rows, as after logical replication, which copies no sequences: changes of "+
				"campaigns and quotas do not act", "given", *d.given, "newest", newest, "remedy", remedy)
		}
		d.apply(p.state)
		return nil
	})
	return p.state.changed(), full, err
}

// delta is the result of one read.
type delta struct {
	full      bool
	removed   int64
	given     *int64 // the last revision that was given out; nil: not known
	set       delivery.Installation
	campaigns rowDelta[*campaignEntry]
	quotas    rowDelta[*quotaEntry]
	endpoints rowDelta[*endpointEntry]
	stores    map[int]time.Time
}

// revision returns the highest that was read.
func (d *delta) revision() int64 {
	return max(d.campaigns.revision, d.quotas.revision, d.endpoints.revision)
}

// readDelta reads the rows with a revision above since, in one round trip. It compares them with the state, which it does not
// change, so that rows that are as they were cost next to nothing.
func (s *state) readDelta(ctx context.Context, tx pgx.Tx, since int64) (*delta, error) {
	d := &delta{full: since == everything}
	s.loads++
	words := newInterner()
	batch := &pgx.Batch{}
	batch.Queue(tunePlans)
	batch.Queue(selectStore).QueryRow(func(row pgx.Row) error {
		return row.Scan(&d.removed, &d.set.Cluster, &d.set.Group, &d.set.Prefix, &d.set.Shards)
	})
	batch.Queue(selectCampaigns, since).Query(func(rows pgx.Rows) error {
		var r campaignRecord
		return d.campaigns.scan(rows, s.campaigns, s.loads, d.full, func(raw [][]byte) (*campaignEntry, error) { return r.read(rows, raw, words) })
	})
	batch.Queue(selectQuotas, since).Query(func(rows pgx.Rows) error {
		return d.quotas.scan(rows, s.quotas, s.loads, d.full, func([][]byte) (*quotaEntry, error) { return readQuota(rows) })
	})
	batch.Queue(selectDestinations, since).Query(func(rows pgx.Rows) error {
		return d.endpoints.scan(rows, s.endpoints, s.loads, d.full, func([][]byte) (*endpointEntry, error) { return readEndpoint(rows, words) })
	})
	batch.Queue(selectStores).Query(d.scanStores)
	if d.full {
		batch.Queue(selectGiven).QueryRow(func(row pgx.Row) error { return row.Scan(&d.given) })
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	return d, nil
}

func (d *delta) scanStores(rows pgx.Rows) error {
	d.stores = map[int]time.Time{}
	var shard int
	var since time.Time
	_, err := pgx.ForEachRow(rows, []any{&shard, &since}, func() error {
		d.stores[shard] = since
		return nil
	})
	return err
}

// rowDelta is the result of one read of a table.
type rowDelta[E entry] struct {
	revision int64    // the highest that was read
	changed  []E      // the rows that are new or changed
	gone     []string // those that are no more; of a full read
}

// entry is a row that the state has.
type entry interface {
	read() *reading
	revision() int64
}

// reading is what was read of a row.
type reading struct {
	digest uint64 // of the row as the database sent it
	load   uint64 // the full load that it was last found in
}

func (r *reading) read() *reading { return r }

// scan converts the rows that differ from those that are known.
func (d *rowDelta[E]) scan(rows pgx.Rows, known map[string]E, load uint64, full bool, convert func(raw [][]byte) (E, error)) error {
	found := 0
	for rows.Next() {
		raw := rows.RawValues()
		digest := digestOf(raw)
		if before, ok := known[string(raw[0])]; ok {
			found++
			before.read().load = load
			if before.read().digest == digest {
				d.revision = max(d.revision, before.revision())
				continue
			}
		}
		row, err := convert(raw)
		if err != nil {
			return err
		}
		*row.read() = reading{digest, load}
		d.revision = max(d.revision, row.revision())
		d.changed = append(d.changed, row)
	}
	if full && found < len(known) {
		for id, row := range known {
			if row.read().load != load {
				d.gone = append(d.gone, id)
			}
		}
	}
	return rows.Err()
}

// scanQuota reads a row of selectQuota, and the columns behind those into more.
func scanQuota(row pgx.CollectableRow, q *delivery.Quota, more ...any) error {
	var wait int64
	err := row.Scan(append([]any{&q.ID, &q.Revision, &q.OnStoreFailure, &q.Mode, &q.Spend, &q.Unit, &q.Exempt, &q.Shard,
		&q.Per, &wait, &q.Pass, &q.Deliveries, &q.Windows}, more...)...)
	q.MaxWait = micros(wait)
	return err
}

// readQuota converts the current row.
func readQuota(rows pgx.Rows) (*quotaEntry, error) {
	var q delivery.Quota
	var keys *string
	if err := scanQuota(rows, &q, &keys); err != nil {
		return nil, err
	}
	q.Keys = keyRowsOf(keys)
	return newQuotaEntry(&q), nil
}

// apply applies the delta to s.
func (d *delta) apply(s *state) {
	if d.full {
		s.revision = 0 // it may be lower than before: that of a database that was brought back from a backup
	}
	s.seen(d.revision())
	for _, id := range d.campaigns.gone {
		s.removeCampaign(id)
	}
	for _, entry := range d.campaigns.changed {
		s.putCampaign(entry)
	}
	for _, id := range d.quotas.gone {
		delete(s.quotas, id)
	}
	if len(d.quotas.gone)+len(d.quotas.changed) > 0 {
		s.putQuotas(d.quotas.changed...)
	}
	for _, id := range d.endpoints.gone {
		delete(s.endpoints, id)
		s.moved = true
	}
	for _, entry := range d.endpoints.changed {
		s.putEndpoint(entry)
	}
	s.removed, s.stores, s.installation = d.removed, d.stores, d.set
}
