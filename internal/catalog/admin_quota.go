package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// QuotaRow is a quota as people see it.
type QuotaRow struct {
	ID             string      `json:"id"`
	Windows        []WindowRow `json:"windows"`
	OnStoreFailure string      `json:"on_store_failure"`
	Mode           string      `json:"mode"`
	Spend          string      `json:"spend"`
	Rollout        int64       `json:"rollout"` // percent of the units that the quota counts and limits
	Unit           string      `json:"unit"`
	Shard          int         `json:"shard"`
	Campaigns      []string    `json:"campaigns"`
	Revision       int64       `json:"revision"`
	UpdatedAt      time.Time   `json:"updated_at"`
}

// WindowRow is a window of a quota as people see it.
type WindowRow struct {
	Span      string `json:"span"`
	MaxUnits  int64  `json:"max_units"`
	Algorithm string `json:"algorithm"`
	Anchor    string `json:"anchor,omitempty"`
}

// Quota is the quota as the engine takes it.
func (q *QuotaRow) Quota() (*delivery.Quota, error) {
	quota := &delivery.Quota{
		ID: q.ID, Revision: q.Revision, OnStoreFailure: q.OnStoreFailure, Mode: q.Mode, Spend: q.Spend, Unit: q.Unit,
		Exempt: 100 - q.Rollout, Shard: q.Shard, Windows: make([]delivery.Window, 0, len(q.Windows)),
	}
	for _, w := range q.Windows {
		window, err := w.window()
		if err != nil {
			return nil, fmt.Errorf("quota %s: %w", q.ID, err)
		}
		quota.Windows = append(quota.Windows, window)
	}
	return quota, nil
}

func (w WindowRow) window() (delivery.Window, error) {
	span, err := ParseSpan(w.Span)
	return delivery.Window{Span: span, Limit: w.MaxUnits, Algorithm: w.Algorithm, Anchor: w.Anchor}, err
}

// String spells the window as ParseWindows reads it.
func (w WindowRow) String() string {
	return spellWindow(w.MaxUnits, w.Span, w.Algorithm, w.Anchor)
}

// QuotaChange says what to change about a quota; nil fields stay as they are, or get their defaults.
type QuotaChange struct {
	Windows        *[]delivery.Window // replaces all; none: the quota does not bind
	OnStoreFailure *string            // closed, local-share, open
	Mode           *string            // strict, eventual, shadow
	Spend          *string            // greedy, even
	Rollout        *int64             // 0 to 100 percent
	Unit           *string            // units, bytes
}

// validate refuses in one line what the database would refuse.
func (c QuotaChange) validate(id string) error {
	if !delivery.ValidID(id) {
		return invalid("quota id %q must be 1 to 256 printable ASCII characters without spaces", shorten(id))
	}
	for _, word := range []struct {
		field   string
		value   *string
		allowed []string
	}{
		{"on_store_failure", c.OnStoreFailure, failurePolicies}, {"mode", c.Mode, quotaModes}, {"spend", c.Spend, spendWays},
		{"unit", c.Unit, quotaUnits},
	} {
		if word.value == nil {
			continue
		}
		if err := checkWord(word.field, *word.value, word.allowed); err != nil {
			return invalid("%s", err)
		}
	}
	if c.Rollout != nil && (*c.Rollout < 0 || *c.Rollout > 100) {
		return invalid("rollout must lie between 0 and 100 percent, not %d", *c.Rollout)
	}
	if c.Windows != nil {
		if err := checkWindows(withDefaults(*c.Windows)); err != nil {
			return invalid("%s", err)
		}
	}
	return nil
}

// withDefaults fills in the default algorithm.
func withDefaults(windows []delivery.Window) []delivery.Window {
	windows = slices.Clone(windows)
	for i := range windows {
		windows[i].Algorithm = orDefault(windows[i].Algorithm, delivery.AlgorithmSliding)
	}
	return windows
}

// ListQuotas returns all quotas in the order of their ids.
func (a *Admin) ListQuotas(ctx context.Context) ([]QuotaRow, error) {
	var quotas []QuotaRow
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		quotas, err = queryQuotas(ctx, pool, "")
		return err
	})
	return quotas, err
}

// GetQuota returns one quota.
func (a *Admin) GetQuota(ctx context.Context, id string) (QuotaRow, error) {
	var quota QuotaRow
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		quota, err = oneQuota(ctx, pool, id)
		return err
	})
	return quota, err
}

// CampaignsOf returns the campaigns under the quota, in the order of their ids; none if the quota does not exist.
func (a *Admin) CampaignsOf(ctx context.Context, quota string) ([]CampaignRow, error) {
	var campaigns []CampaignRow
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		campaigns, err = queryCampaigns(ctx, pool, `JOIN pacer.campaign_quotas u ON u.campaign_id = c.id
WHERE u.quota_id = $1 ORDER BY c.id COLLATE "C"`, quota)
		return err
	})
	return campaigns, err
}

// SetQuota creates the quota or changes it.
func (a *Admin) SetQuota(ctx context.Context, id string, change QuotaChange) (QuotaRow, error) {
	var quota QuotaRow
	if err := change.validate(id); err != nil {
		return quota, err
	}
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			if err = change.write(ctx, tx, id); err != nil {
				return err
			}
			if change.Windows != nil {
				if err = replaceWindows(ctx, tx, id, withDefaults(*change.Windows)); err != nil {
					return err
				}
			}
			quota, err = oneQuota(ctx, tx, id)
			return err
		})
	})
	return quota, err
}

// write changes the row of the quota or makes it. Writers of the catalog take turns, so nobody else makes it in between.
// (ON CONFLICT would show the triggers a new row first, and they would refuse what only suits the one that exists.)
func (c QuotaChange) write(ctx context.Context, tx pgx.Tx, id string) error {
	tag, err := tx.Exec(ctx, `UPDATE pacer.quotas SET on_store_failure = coalesce($2, on_store_failure),
    mode = coalesce($3, mode), spend = coalesce($4, spend), rollout = coalesce($5, rollout), unit = coalesce($6, unit)
WHERE id = $1`, id, c.OnStoreFailure, c.Mode, c.Spend, c.Rollout, c.Unit)
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO pacer.quotas (id, on_store_failure, mode, spend, rollout, unit)
VALUES ($1, coalesce($2, 'closed'), coalesce($3, 'strict'), coalesce($4, 'greedy'), coalesce($5, 100), coalesce($6, 'units'))`,
		id, c.OnStoreFailure, c.Mode, c.Spend, c.Rollout, c.Unit)
	return err
}

// replaceWindows makes windows those of the quota; a window that stays as it is leaves no trace in the changes.
func replaceWindows(ctx context.Context, tx pgx.Tx, quota string, windows []delivery.Window) error {
	spans := make([]time.Duration, 0, len(windows))
	for _, w := range windows {
		spans = append(spans, w.Span)
	}
	_, err := tx.Exec(ctx, `DELETE FROM pacer.quota_windows WHERE quota_id = $1 AND span <> ALL ($2::interval[])`, quota, spans)
	if err != nil {
		return err
	}
	for _, w := range windows {
		_, err := tx.Exec(ctx, `INSERT INTO pacer.quota_windows AS w (quota_id, span, max_units, algorithm, anchor)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT (quota_id, span) DO UPDATE
SET max_units = excluded.max_units, algorithm = excluded.algorithm, anchor = excluded.anchor
WHERE (w.max_units, w.algorithm, w.anchor) IS DISTINCT FROM (excluded.max_units, excluded.algorithm, excluded.anchor)`,
			quota, w.Span, w.Limit, w.Algorithm, nullable(w.Anchor))
		if err != nil {
			return err
		}
	}
	return nil
}

func oneQuota(ctx context.Context, q rowsQuerier, id string) (QuotaRow, error) {
	quotas, err := queryQuotas(ctx, q, `WHERE q.id = $1`, id)
	if err != nil {
		return QuotaRow{}, err
	}
	if len(quotas) == 0 {
		return QuotaRow{}, notFound("quota %s does not exist; create it with: pacer quota set %s --window 300/1m", id, id)
	}
	return quotas[0], nil
}

// queryQuotas reads a row for each window, those of one quota together.
func queryQuotas(ctx context.Context, q rowsQuerier, where string, args ...any) ([]QuotaRow, error) {
	rows, err := q.Query(ctx, `
SELECT q.id, q.on_store_failure, q.mode, q.spend, q.rollout, q.unit, q.shard, q.revision, q.updated_at,
       ARRAY(SELECT l.campaign_id FROM pacer.campaign_quotas l WHERE l.quota_id = q.id ORDER BY l.campaign_id COLLATE "C"),
       (extract(epoch FROM w.span) * 1000000)::bigint, w.max_units, w.algorithm, coalesce(w.anchor, '')
FROM pacer.quotas q LEFT JOIN pacer.quota_windows w ON w.quota_id = q.id `+where+`
ORDER BY q.id COLLATE "C", w.span`, args...)
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	defer rows.Close()
	quotas := []QuotaRow{}
	for rows.Next() {
		r := QuotaRow{Windows: []WindowRow{}}
		var span, limit *int64
		var algorithm *string
		var anchor string
		err := rows.Scan(&r.ID, &r.OnStoreFailure, &r.Mode, &r.Spend, &r.Rollout, &r.Unit, &r.Shard, &r.Revision, &r.UpdatedAt,
			&r.Campaigns, &span, &limit, &algorithm, &anchor)
		if err != nil {
			return nil, fmt.Errorf("read quotas: %w", err)
		}
		if n := len(quotas); n == 0 || quotas[n-1].ID != r.ID {
			quotas = append(quotas, r)
		}
		if span != nil && limit != nil && algorithm != nil {
			last := &quotas[len(quotas)-1]
			last.Windows = append(last.Windows, WindowRow{FormatSpan(micros(*span)), *limit, *algorithm, anchor})
		}
	}
	return quotas, rows.Err()
}
