package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

// QuotaRow is a quota for display: as daemons have it, but without what is set for single keys.
type QuotaRow struct {
	delivery.Quota

	Campaigns []string
	UpdatedAt time.Time
}

// Keying is how a quota is kept by a key of the jobs.
type Keying struct {
	Per     string  `json:"per,omitempty" doc:"the key that it is kept by; absent: all jobs of its campaigns share the windows"`
	MaxWait *string `json:"max_wait,omitempty" doc:"how long a job may wait for its key; then it is capped; absent: as long as it may"`
	Keyless string  `json:"keyless,omitempty" doc:"what becomes of jobs without the key: dead (letters) or pass"`
	Count   string  `json:"count,omitempty" doc:"attempts, or deliveries, which gives back what was not delivered"`
}

// QuotaChange is a change of a quota; nil fields are kept, or get their defaults in a new quota.
type QuotaChange struct {
	Mode           *string `json:"mode,omitempty" enum:"strict,shadow,eventual" doc:"exact; evaluated and reported only; approximate"`
	Spend          *string `json:"spend,omitempty" enum:"greedy,even" doc:"as fast as asked for, or over the span"`
	OnStoreFailure *string `json:"on_store_failure,omitempty" enum:"closed,local-share,open" doc:"when Redis fails: wait; each daemon its share; unlimited"`
	Rollout        *int64  `json:"rollout,omitempty" minimum:"0" maximum:"100" doc:"percent of its campaigns that it counts and limits"`
	Unit           *string `json:"unit,omitempty" enum:"units,bytes" doc:"weights of jobs, or bytes of payloads (mode eventual only)"`
	Per            *string `json:"per,omitempty" maxLength:"32" doc:"of a new quota: the key of jobs that it is kept by, such as recipient"`
	MaxWait        *string `json:"max_wait,omitempty" maxLength:"64" doc:"of a keyed quota: how long a job may wait for its key, such as 6h; 0: it is capped at once; empty: as long as it may"`
	Keyless        *string `json:"keyless,omitempty" enum:"dead,pass" doc:"of a keyed quota: what becomes of jobs without the key"`
	Count          *string `json:"count,omitempty" enum:"attempts,deliveries" doc:"of a keyed quota: what counts"`
	With           *string `json:"with,omitempty" maxLength:"256" doc:"of a new quota: id of one with which campaigns are to have both"` // it is created in the same shard

	Windows    *[]delivery.Window `json:"-"` // replaces all; none: the quota does not bind
	Exists     *bool              `json:"-"` // whether the quota must exist before; else the error is ErrNotFound or ErrExists
	AtRevision *int64             `json:"-"` // that of the quota before; else the error is ErrStale
}

// validate returns in one line what is wrong with the id and the windows. The database checks the rest in as good words.
func (c QuotaChange) validate(id string) error {
	if !delivery.ValidID(id) {
		return invalid("quota id %q %s", notation.Shorten(id), delivery.IDRule)
	}
	if c.Windows != nil {
		q := model.WithDefaults(delivery.Quota{Windows: *c.Windows, Per: orZero(c.Per)})
		if c.Spend != nil {
			q.Spend = *c.Spend
		}
		if err := model.CheckQuota(&q); err != nil && (c.Per != nil || !errors.Is(err, model.ErrRecipient)) { // the database has per
			return invalid("%s", err)
		}
	}
	return nil
}

// assignment returns what the change sets, or in one line what is wrong with it.
func (c QuotaChange) assignment(id string) (*assignment, error) {
	if err := c.validate(id); err != nil {
		return nil, err
	}
	a := assign(id)
	if wait := orZero(c.MaxWait); wait != "" {
		span, err := notation.ParseSpan(wait)
		if err != nil {
			return nil, invalid("max_wait: %s", err)
		}
		a.set("max_wait", span)
	} else if c.MaxWait != nil {
		a.set("max_wait", nil) // as long as it may
	}
	setIf(a, "on_store_failure", c.OnStoreFailure, asIs)
	setIf(a, "mode", c.Mode, asIs)
	setIf(a, "spend", c.Spend, asIs)
	setIf(a, "rollout", c.Rollout, asIs)
	setIf(a, "unit", c.Unit, asIs)
	setIf(a, "per", c.Per, asIs)
	setIf(a, "keyless", c.Keyless, asIs)
	setIf(a, "count", c.Count, asIs)
	return a, nil
}

// ParseWindows is notation.ParseWindows with the limits of the schema.
func ParseWindows(text string) ([]delivery.Window, error) {
	windows, err := notation.ParseWindows(text)
	if err != nil {
		return nil, err
	}
	return windows, model.CheckWindows(windows)
}

// GetQuota returns one quota.
func (a *Admin) GetQuota(ctx context.Context, id string) (QuotaRow, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) (QuotaRow, error) { return oneQuota(ctx, pool, id) })
}

// SetQuota creates the quota or changes it.
func (a *Admin) SetQuota(ctx context.Context, id string, change QuotaChange) (QuotaRow, error) {
	set, err := change.assignment(id)
	if err != nil {
		return QuotaRow{}, err
	}
	return rewrite(ctx, a, id, oneQuota, true, func(ctx context.Context, tx pgx.Tx) error {
		err := change.expect(ctx, tx, id)
		if err == nil {
			err = change.write(ctx, tx, id, *set) // it may be tried again
		}
		if err == nil && change.Windows != nil {
			err = replaceWindows(ctx, tx, id, model.WindowsWithDefaults(*change.Windows))
		}
		return err
	})
}

// expect checks that the quota has the expected revision, or does not exist. Writers of quotas take turns.
func (c QuotaChange) expect(ctx context.Context, tx pgx.Tx, id string) error {
	if c.Exists == nil && c.AtRevision == nil {
		return nil
	}
	row, err := oneQuota(ctx, tx, id)
	switch {
	case err == nil && c.Exists != nil && !*c.Exists:
		return exists("quota", id)
	case err == nil:
		return asSeen("quota", id, row.Revision, c.AtRevision)
	case errors.Is(err, ErrNotFound) && c.AtRevision == nil && !*c.Exists:
		return nil
	}
	return err
}

// write inserts or updates the row of the quota. Writers of quotas take turns, so no other writer inserts it in
// between. (With ON CONFLICT the triggers would see a new row first, and refuse values that suit only the existing
// one.)
func (c QuotaChange) write(ctx context.Context, tx pgx.Tx, id string, set assignment) error {
	var with *QuotaRow
	if c.With != nil {
		other, err := oneQuota(ctx, tx, *c.With)
		if err != nil {
			return err
		}
		with = &other
	}
	shard := 0
	err := tx.QueryRow(ctx, set.statement(`UPDATE pacer.quotas SET (%s) = ROW (%s) WHERE id = $1 RETURNING shard`), set.values...).Scan(&shard)
	switch {
	case err == nil && with != nil && with.Shard != shard:
		return invalid("quota %s lives in shard %d, quota %s in shard %d; counts stay where they are: create a quota with another id",
			id, shard, *c.With, with.Shard)
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	if c.OnStoreFailure == nil {
		set.set("on_store_failure", c.storePolicy())
	}
	if with != nil { // otherwise a trigger chooses
		set.set("shard", with.Shard)
	}
	_, err = tx.Exec(ctx, set.statement(`INSERT INTO pacer.quotas (%s) VALUES (%s)`), set.values...)
	return err
}

// storePolicy is the default of on_store_failure: a keyed quota of more than two minutes is open, since a cap need not stop its campaigns.
func (c QuotaChange) storePolicy() string {
	long := func(w delivery.Window) bool { return w.Span > delivery.LongSpan }
	if c.Per != nil && c.Windows != nil && slices.ContainsFunc(*c.Windows, long) {
		return delivery.PolicyOpen
	}
	return delivery.PolicyClosed
}

// replaceWindows replaces the windows of the quota; unchanged windows are not written.
func replaceWindows(ctx context.Context, tx pgx.Tx, quota string, windows []delivery.Window) error {
	spans := column(windows, func(w delivery.Window) time.Duration { return w.Span })
	_, err := tx.Exec(ctx, `DELETE FROM pacer.quota_windows WHERE quota_id = $1 AND span <> ALL ($2::interval[])`, quota, spans)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO pacer.quota_windows AS w (quota_id, span, max_units, algorithm, anchor)
SELECT $1, n.* FROM unnest($2::interval[], $3::bigint[], $4::text[], $5::text[]) AS n ON CONFLICT (quota_id, span) DO UPDATE
SET max_units = excluded.max_units, algorithm = excluded.algorithm, anchor = excluded.anchor
WHERE (w.max_units, w.algorithm, w.anchor) IS DISTINCT FROM (excluded.max_units, excluded.algorithm, excluded.anchor)`,
		quota, spans, column(windows, func(w delivery.Window) int64 { return w.Limit }),
		column(windows, func(w delivery.Window) string { return w.Algorithm }),
		column(windows, func(w delivery.Window) *string { return nullable(w.Anchor) }))
	return err
}

// FormatWait formats how long a job may wait for its key, as QuotaChange has it.
func FormatWait(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return notation.FormatSpan(d)
}

func noQuota(id string) string {
	return fmt.Sprintf("quota %s does not exist; create it with: pacer quota set %s --window 300/1m", id, id)
}

func oneQuota(ctx context.Context, q querier, id string) (QuotaRow, error) {
	quotas, err := queryQuotas(ctx, q, `WHERE q.id = $1`, id)
	return only(quotas, err, inLine(noQuota(id), ErrNotFound))
}

func queryQuotas(ctx context.Context, q querier, where string, args ...any) ([]QuotaRow, error) {
	rows, err := q.Query(ctx, selectQuota+`,
       ARRAY(SELECT l.campaign_id FROM pacer.campaign_quotas l WHERE l.quota_id = q.id ORDER BY l.campaign_id COLLATE "C"), q.updated_at
FROM pacer.quotas q `+where+` ORDER BY q.id COLLATE "C"`, args...)
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r QuotaRow, err error) {
		err = scanQuota(row, &r.Quota, &r.Campaigns, &r.UpdatedAt)
		return r, err
	})
}
