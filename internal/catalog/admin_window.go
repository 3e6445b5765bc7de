package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// noWindow is the error of an adjustment of a window that is not there.
func noWindow(q *delivery.Quota, span time.Duration) error {
	return inLine(fmt.Sprintf("quota %s has no window of %s; it has %s", q.ID, notation.FormatSpan(span), spellSpans(q.Windows)), ErrNotFound)
}

func spellSpans(windows []delivery.Window) string {
	if len(windows) == 0 {
		return "none"
	}
	var list []string
	for _, w := range windows {
		list = append(list, notation.FormatSpan(w.Span))
	}
	return strings.Join(list, ", ")
}

// DeleteQuota deletes a quota and its history, and returns what it was. Campaigns are taken out of it only if unlink says so:
// those without another quota are limited by their rate alone from then on. If a revision is given, it is only of the quota as it
// was then.
func (a *Admin) DeleteQuota(ctx context.Context, id string, unlink bool, revision *int64) (was QuotaRow, err error) {
	_, err = a.alterQuota(ctx, id, func(tx pgx.Tx, row *QuotaRow) error {
		if err := asSeen("quota", id, row.Revision, revision); err != nil {
			return err
		}
		if was = *row; len(row.Campaigns) > 0 && !unlink {
			return invalid("quota %s limits %d campaigns, such as %s; take them out of it, or give --unlink", id, len(row.Campaigns), row.Campaigns[0])
		}
		_, err := tx.Exec(ctx, `DELETE FROM pacer.quotas WHERE id = $1`, id)
		return err
	})
	return was, err
}

// maxReason bounds the reason of a change, in characters.
const maxReason = 1000

// AdjustQuota records that the count of one window is corrected, which adjust does: it returns what was counted before and
// is now, and the minute since the Unix epoch on the store's clock. If it returns an error, nothing is recorded.
func (a *Admin) AdjustQuota(ctx context.Context, id string, span time.Duration, reason string,
	adjust func(q *delivery.Quota, window int) (before, after, minute int64, err error),
) (QuotaRow, error) {
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > maxReason {
		return QuotaRow{}, invalid("reason: say in 1 to %d bytes why the count is adjusted", maxReason)
	}
	return a.alterQuota(ctx, id, func(tx pgx.Tx, row *QuotaRow) error {
		q, err := row.Quota()
		if err != nil {
			return err
		}
		window := slices.IndexFunc(q.Windows, func(w delivery.Window) bool { return w.Span == span })
		if window < 0 {
			return noWindow(q, span)
		}
		before, after, minute, err := adjust(q, window)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `SELECT pacer.record_adjustment($1, $2, $3, $4, $5, $6)`, id, span, before, after, reason, minute)
		return err
	})
}

// alterQuota makes one change of a quota that exists, in the turn of writers of quotas, and returns the quota as it is then;
// if it was deleted, as it was.
func (a *Admin) alterQuota(ctx context.Context, id string, change func(tx pgx.Tx, row *QuotaRow) error) (QuotaRow, error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (QuotaRow, error) {
		if err := takeTurn(ctx, tx); err != nil {
			return QuotaRow{}, err
		}
		row, err := oneQuota(ctx, tx, id)
		if err == nil {
			err = change(tx, &row)
		}
		if err == nil {
			err = number(ctx, tx)
		}
		if err != nil {
			return QuotaRow{}, err
		}
		rows, err := queryQuotas(ctx, tx, `WHERE q.id = $1`, id)
		if err == nil && len(rows) > 0 {
			row = rows[0]
		}
		return row, err
	})
}
