package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/notation"
)

// BulkChange is one change of many campaigns. Pausing and resuming change only active and paused ones, rates those that are not over.
type BulkChange struct {
	Action  string  `json:"action" enum:"pause,resume,rate,percent"`
	Rate    string  `json:"rate,omitempty" maxLength:"64" pattern:"^ *[0-9]+([.][0-9]{0,6})?(/[0-9a-zµμ. ]+)? *$" patternDescription:"a rate such as 500, 2.5 or 150/m, not negative" doc:"of action rate"`
	Percent float64 `json:"percent,omitempty" minimum:"0" maximum:"10000" doc:"of action percent: the new rates, of the present ones"`
	Until   string  `json:"until,omitempty" maxLength:"64" example:"2h" doc:"of action pause: when they go on by themselves, RFC 3339 or a span from now on; empty for never"`
}

const (
	bulkChunk  = 500 // campaigns of one transaction: others wait for them
	maxPercent = 10_000
)

// ChangeCampaigns changes the campaigns that exist of these, in several transactions, and returns how many have changed: with an error
// as well.
func (a *Admin) ChangeCampaigns(ctx context.Context, ids []string, change BulkChange) (changed int, err error) {
	set, args, err := change.statement()
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(slices.Sorted(slices.Values(ids)), bulkChunk) {
		n, err := alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (int, error) {
			if _, err := tx.Exec(ctx, `SELECT FROM pacer.campaigns WHERE id = ANY ($1) ORDER BY id FOR UPDATE`, chunk); err != nil {
				return 0, err
			}
			tag, err := tx.Exec(ctx, `UPDATE pacer.campaigns SET `+set, append([]any{chunk}, args...)...)
			return int(tag.RowsAffected()), err
		})
		changed += n
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// statement returns what follows SET, with the ids as $1.
func (c BulkChange) statement() (set string, args []any, err error) {
	const going = ` WHERE id = ANY ($1) AND status IN ('active', 'paused')`
	switch {
	case c.Action == "pause":
		var until *time.Time
		if c.Until != "" {
			if until, err = parseUntil(c.Until); err != nil {
				return "", nil, err
			}
		}
		return `status = 'paused', paused_until = $2 WHERE id = ANY ($1) AND status = 'active'`, []any{until}, nil
	case c.Action == "resume":
		return `status = 'active' WHERE id = ANY ($1) AND status = 'paused'`, nil, nil
	case c.Action == "rate" && c.Rate == "":
		return "", nil, invalid("rate: give one such as 500 or 150/m")
	case c.Action == "rate":
		units, per, err := notation.ParseRate(c.Rate)
		if err != nil {
			return "", nil, invalid("%s", err)
		}
		return `(send_rate, send_per) = ROW ($2::numeric, $3::interval)` + going, []any{notation.FormatMicros(units), per}, nil
	case c.Percent > 0 && c.Percent <= maxPercent:
		return `send_rate = trim_scale(round(send_rate * $2::float8::numeric / 100, 6))` + going, []any{c.Percent}, nil
	}
	return "", nil, invalid("percent must be above 0 and at most %d", maxPercent)
}

// PausedFor returns the campaigns that are paused, and were last paused for this reason, as far as the record of changes goes back.
func (a *Admin) PausedFor(ctx context.Context, reason string) (ids []string, err error) {
	return list(ctx, a.database, "", pgx.RowTo[string], `
SELECT c.id FROM pacer.campaigns c CROSS JOIN LATERAL (
    SELECT reason FROM pacer.campaign_changes
    WHERE campaign_id = c.id AND relation = 'campaigns' AND old->>'status' IS DISTINCT FROM new->>'status' ORDER BY change DESC LIMIT 1) AS last
WHERE c.status = 'paused' AND last.reason = $1 ORDER BY c.id`, reason)
}
