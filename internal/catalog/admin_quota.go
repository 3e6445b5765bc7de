package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

// QuotaRow is what people set of a quota, as they write it.
type QuotaRow struct {
	ID             string   `json:"id"`
	Revision       int64    `json:"revision"`
	Windows        []string `json:"windows" doc:"as 300/1m, 20/10s:log, 5000/1d:fixed:day@Europe/Moscow; none: it does not bind"`
	Mode           string   `json:"mode"`
	Spend          string   `json:"spend"`
	OnStoreFailure string   `json:"on_store_failure"`
	Rollout        int64    `json:"rollout" doc:"percent of its campaigns that it counts and limits"`
	Unit           string   `json:"unit"`
	Keying
	Shard       int      `json:"shard"`
	Campaigns   int      `json:"campaigns" doc:"how many it limits"`
	CampaignIDs []string `json:"campaign_ids" doc:"at most 1,000 of them"`

	UpdatedAt *time.Time `json:"updated_at,omitempty"`
}

// Seen returns the revision of the quota when it was read.
func (r *QuotaRow) Seen() int64 { return r.Revision }

// MaxListed bounds the campaigns that are listed with a quota.
const MaxListed = 1000

// Keying is how a quota is kept by a key of the jobs.
type Keying struct {
	Per     string  `json:"per,omitempty" doc:"the key that it is kept by; absent: all jobs of its campaigns share the windows"`
	MaxWait *string `json:"max_wait,omitempty" doc:"how long a job may wait for its key; then it is capped; absent: as long as it may"`
	Keyless string  `json:"keyless,omitempty" doc:"what becomes of jobs without the key: dead (letters) or pass"`
	Count   string  `json:"count,omitempty" doc:"attempts, or deliveries, which gives back what was not delivered"`
}

// KeyingOf returns how a quota is kept by its key, if it is.
func KeyingOf(q *delivery.Quota) Keying {
	if q.Per == "" {
		return Keying{}
	}
	k := Keying{Per: q.Per, Keyless: "dead", Count: "attempts"}
	if q.Pass {
		k.Keyless = "pass"
	}
	if q.Deliveries {
		k.Count = "deliveries"
	}
	if q.MaxWait == 0 {
		k.MaxWait = new("0")
	} else if q.MaxWait > 0 {
		k.MaxWait = new(notation.FormatSpan(q.MaxWait))
	}
	return k
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

	Windows *[]string `json:"windows,omitempty" maxItems:"64" example:"[\"300/1m\"]" doc:"all of them; 300/1m slides, 20/10s:log is exact, 5000/1d:fixed begins at its first use, 5000/1d:fixed:day@Europe/Moscow with the day" nullable:"false"`
}

// windows returns the windows that the change sets; nil: it sets none.
func (c *QuotaChange) windows() ([]delivery.Window, error) {
	if c.Windows == nil {
		return nil, nil
	}
	windows, err := ParseWindows(strings.Join(*c.Windows, ","))
	if err != nil {
		return nil, invalid("windows: %s", err)
	}
	q := model.WithDefaults(delivery.Quota{Windows: windows, Per: orZero(c.Per)})
	if c.Spend != nil {
		q.Spend = *c.Spend
	}
	if err := model.CheckQuota(&q); err != nil && (c.Per != nil || !errors.Is(err, model.ErrRecipient)) { // the database has per
		return nil, invalid("%s", err)
	}
	return windows, nil
}

// assignment returns what the change sets of the row, or in one line what is wrong with it. The database checks the rest in as good words.
func (c *QuotaChange) assignment(id string) (*assignment, error) {
	if !delivery.ValidID(id) {
		return nil, invalid("quota id %q %s", notation.Shorten(id), delivery.IDRule)
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

// WriteQuota creates a quota, or changes what change sets and keeps the rest.
func (a *Admin) WriteQuota(ctx context.Context, id string, change *QuotaChange, on Precondition) (QuotaRow, error) {
	set, err := change.assignment(id)
	if err != nil {
		return QuotaRow{}, err
	}
	windows, err := change.windows()
	if err != nil {
		return QuotaRow{}, err
	}
	if on.New && change.OnStoreFailure == nil {
		set.set("on_store_failure", change.storePolicy(windows))
	}
	return quotas.change(ctx, a, id, func(ctx context.Context, tx pgx.Tx) error {
		set := *set // it may be tried again
		if change.With != nil {
			with, err := oneQuota(ctx, tx, *change.With)
			if err != nil {
				return err
			}
			set.set("shard", with.Shard) // without it a trigger chooses; that of a quota that exists stays
		}
		err := quotas.write(ctx, tx, id, &set, on)
		if err == nil && windows != nil {
			err = replaceWindows(ctx, tx, id, model.WindowsWithDefaults(windows))
		}
		return err
	})
}

// storePolicy is the default of on_store_failure: a keyed quota of more than two minutes is open, since a cap need not stop its campaigns.
func (c *QuotaChange) storePolicy(windows []delivery.Window) string {
	long := func(w delivery.Window) bool { return w.Span > delivery.LongSpan }
	if c.Per != nil && slices.ContainsFunc(windows, long) {
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

func unknownQuota(id string) error {
	return inLine(fmt.Sprintf("quota %s does not exist; create it with: pacer quota set %s --window 300/1m", id, id), ErrNotFound)
}

// linkedQuota is a quota as daemons have it, without what is set for single keys, and the ids of its campaigns.
type linkedQuota struct {
	delivery.Quota

	campaigns []string
	updatedAt time.Time
}

func oneQuota(ctx context.Context, q querier, id string) (row QuotaRow, err error) {
	is, err := oneLinked(ctx, q, id)
	if err != nil {
		return row, err
	}
	return QuotaRow{
		ID: is.ID, Revision: is.Revision, Windows: column(is.Windows, notation.FormatWindow), Mode: is.Mode, Spend: is.Spend, OnStoreFailure: is.OnStoreFailure,
		Rollout: 100 - is.Exempt, Unit: is.Unit, Keying: KeyingOf(&is.Quota), Shard: is.Shard, Campaigns: len(is.campaigns),
		CampaignIDs: is.campaigns[:min(len(is.campaigns), MaxListed)], UpdatedAt: &is.updatedAt,
	}, nil
}

func oneLinked(ctx context.Context, q querier, id string) (linkedQuota, error) {
	quotas, err := queryQuotas(ctx, q, `WHERE q.id = $1`, id)
	return only(quotas, err, unknownQuota(id))
}

func queryQuotas(ctx context.Context, q querier, where string, args ...any) ([]linkedQuota, error) {
	rows, err := q.Query(ctx, selectQuota+`,
       ARRAY(SELECT l.campaign_id FROM pacer.campaign_quotas l WHERE l.quota_id = q.id ORDER BY l.campaign_id COLLATE "C"), q.updated_at
FROM pacer.quotas q `+where+` ORDER BY q.id COLLATE "C"`, args...)
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r linkedQuota, err error) {
		err = scanQuota(row, &r.Quota, &r.campaigns, &r.updatedAt)
		return r, err
	})
}
