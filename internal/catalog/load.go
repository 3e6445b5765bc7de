package catalog

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

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

	selectCampaigns = `
SELECT c.id, c.revision, trim_scale(c.send_rate)::text,
       least(greatest(extract(epoch FROM c.send_per) * 1000000, -1), 9e15)::bigint,
       c.burst, c.status, coalesce(c.sink, ''), c.priority_weight, c.max_in_flight,
       CASE WHEN isfinite(c.starts_at) THEN c.starts_at END, CASE WHEN isfinite(c.ends_at) THEN c.ends_at END,
       c.overflow, least(greatest(extract(epoch FROM coalesce(c.job_ttl, '0')) * 1000000, -1), 9e15)::bigint,
       coalesce(c.expected_total, 0), c.active_hours::text, c.time_zone, c.ramp::text,
       CASE WHEN isfinite(c.ramp_since) THEN c.ramp_since END, CASE WHEN isfinite(c.paused_until) THEN c.paused_until END,
       ARRAY(SELECT l.quota_id FROM pacer.campaign_quotas l WHERE l.campaign_id = c.id ORDER BY l.quota_id COLLATE "C"),
       coalesce(c.time_zone_missing, ''), coalesce(c.avoid_minutes, ''),
       CASE WHEN isfinite(c.finish_by) THEN c.finish_by END, coalesce(c.finish_rate, 0), c.revision - coalesce(c.set_revision, c.revision)
FROM pacer.campaigns c WHERE c.revision > $1`

	selectQuotas = `
SELECT q.id, q.revision, q.on_store_failure, q.mode, q.spend, q.unit, 100 - q.rollout::bigint, q.shard,
       coalesce(q.per, ''), CASE WHEN q.max_wait IS NULL THEN -1 ELSE least(extract(epoch FROM q.max_wait) * 1000000, 9e15) END::bigint,
       q.keyless = 'pass', q.count = 'deliveries',
       (SELECT jsonb_object_agg(k.key, jsonb_build_object('windows', k.windows, 'held_until', k.held_until))::text
        FROM pacer.quota_keys k WHERE k.quota_id = q.id AND q.per IS NOT NULL),
       least(greatest(extract(epoch FROM w.span) * 1000000, -1), 9e15)::bigint, w.max_units, w.algorithm, w.anchor
FROM pacer.quotas q LEFT JOIN pacer.quota_windows w ON w.quota_id = q.id
WHERE q.revision > $1 ORDER BY q.id COLLATE "C", w.span`

	// A shard has one row, whose time is changed when its data is another. The first data took the place of none.
	selectStores = `SELECT shard, since FROM pacer.store_incarnations WHERE isfinite(since) AND cause <> 'the first'`

	// everything is a revision below all others.
	everything int64 = -1
)

// load brings the state up to date in one consistent read and publishes it.
func (p *Postgres) load(ctx context.Context, wanted scope) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	started := time.Now()
	p.resume(ctx)
	changed, full, err := p.read(ctx, wanted)
	if err != nil {
		return explain(err)
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
	for state, gauge := range p.metrics.endpoints {
		gauge.Set(float64(p.state.endpoints.states[state]))
	}
	p.metrics.campaigns.Set(float64(len(next.Campaigns)))
	p.metrics.revision.Set(float64(next.Revision))
	p.publish(next)
}

// canSend reports whether a campaign whose jobs are to be sent has a sink.
func (p *Postgres) canSend(c *delivery.Campaign) bool {
	settles := c.Status != delivery.StatusActive && c.Status != delivery.StatusPaused
	return settles || p.options.HasSink == nil || p.options.HasSink(c.Sink)
}

// read updates p.state from one snapshot of the database. After an error the state is unchanged.
func (p *Postgres) read(ctx context.Context, wanted scope) (changed, full bool, err error) {
	pool, err := p.database.pool()
	if err != nil {
		return false, false, err
	}
	if wanted.full {
		if err := checkSchema(ctx, pool); err != nil {
			return false, false, err
		}
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		full = wanted.full
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
		newest, remedy := max(d.revision, d.campaigns.revision, d.endpoints.revision, d.removed), "run pacer migrate catch-up"
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
	revision  int64 // the highest of the quotas
	campaigns rowDelta[*campaignEntry]
	quotas    []*quotaEntry
	endpoints rowDelta[*endpointEntry]
	stores    map[int]time.Time
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
		r := campaignReader{words: words}
		return d.campaigns.scan(rows, s.campaigns, s.loads, d.full, func(raw [][]byte) (*campaignEntry, error) { return r.read(rows, raw) })
	})
	batch.Queue(selectQuotas, since).Query(func(rows pgx.Rows) error { return d.scanQuotas(rows, s) })
	batch.Queue(selectDestinations, since).Query(func(rows pgx.Rows) error {
		return d.endpoints.scan(rows, s.endpoints.rows, s.loads, d.full, func([][]byte) (*endpointEntry, error) { return readEndpoint(rows, words) })
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

// scanQuotas reads one row per window; the rows of a quota are adjacent.
func (d *delta) scanQuotas(rows pgx.Rows, s *state) error {
	var quotas []*delivery.Quota
	for rows.Next() {
		var q delivery.Quota
		var w windowRecord
		var wait int64
		var keys *string
		err := rows.Scan(&q.ID, &q.Revision, &q.OnStoreFailure, &q.Mode, &q.Spend, &q.Unit, &q.Exempt, &q.Shard,
			&q.Per, &wait, &q.Pass, &q.Deliveries, &keys, &w.span, &w.limit, &w.algorithm, &w.anchor)
		if err != nil {
			return err
		}
		if n := len(quotas); n == 0 || quotas[n-1].ID != q.ID {
			q.MaxWait, q.Keys = micros(wait), keyRows(keys)
			quotas = append(quotas, &q)
		}
		w.add(quotas[len(quotas)-1])
	}
	for _, q := range quotas {
		entry := s.quotas[q.ID]
		if entry == nil || !reflect.DeepEqual(entry.quota, q) {
			entry = newQuotaEntry(q)
		}
		d.quotas = append(d.quotas, entry)
		d.revision = max(d.revision, q.Revision)
	}
	return rows.Err()
}

// apply applies the delta to s.
func (d *delta) apply(s *state) {
	if d.full {
		s.revision = 0 // it may be lower than before: that of a database that was brought back from a backup
	}
	s.seen(max(d.revision, d.campaigns.revision, d.endpoints.revision))
	for _, id := range d.campaigns.gone {
		s.removeCampaign(id)
	}
	for _, entry := range d.campaigns.changed {
		s.putCampaign(entry)
	}
	d.applyQuotas(s)
	for _, id := range d.endpoints.gone {
		s.endpoints.remove(id)
	}
	for _, entry := range d.endpoints.changed {
		s.endpoints.put(entry)
	}
	s.removed, s.stores, s.installation = d.removed, d.stores, d.set
}

func (d *delta) applyQuotas(s *state) {
	read := make(map[string]bool, len(d.quotas))
	changed := d.quotas[:0]
	for _, entry := range d.quotas {
		if read[entry.quota.ID] = true; s.quotas[entry.quota.ID] != entry {
			changed = append(changed, entry)
		}
	}
	if len(changed) > 0 {
		s.putQuotas(changed...)
	}
	if d.full && len(read) < len(s.quotas) {
		maps.DeleteFunc(s.quotas, func(id string, _ *quotaEntry) bool { return !read[id] })
		s.touchQuotas()
	}
}
