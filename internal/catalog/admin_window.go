package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// DeleteQuota deletes a quota and its history, and returns what it was. Campaigns are taken out of it only if unlink says so:
// those without another quota are limited by their rate alone from then on. If a revision is given, it is only of the quota as it
// was then.
func (a *Admin) DeleteQuota(ctx context.Context, id string, unlink bool, revision *int64) (QuotaRow, error) {
	return quotas.remove(ctx, a, id, revision, func(row QuotaRow) error {
		if row.Campaigns > 0 && !unlink {
			return invalid("quota %s limits %d campaigns, such as %s; take them out of it, or give --unlink", id, row.Campaigns, row.CampaignIDs[0])
		}
		return nil
	})
}

// AdjustQuota records that the count of one window is corrected, for the reason of the actor, which adjust does: it returns what was counted before and
// is now, and the minute since the Unix epoch on the store's clock. If it returns an error, nothing is recorded.
func (a *Admin) AdjustQuota(ctx context.Context, id string, span time.Duration,
	adjust func(q *delivery.Quota, window int) (before, after, minute int64, err error),
) (QuotaRow, error) {
	reason := strings.TrimSpace(ActorOf(ctx).Reason)
	if reason == "" || !IsLine(reason) {
		return QuotaRow{}, invalid("reason: say in one line why the count is adjusted")
	}
	return quotas.change(ctx, a, id, func(ctx context.Context, tx pgx.Tx) error {
		row, err := oneLinked(ctx, tx, id)
		if err != nil {
			return err
		}
		window := slices.IndexFunc(row.Windows, func(w delivery.Window) bool { return w.Span == span })
		if window < 0 {
			spans := column(row.Windows, func(w delivery.Window) string { return notation.FormatSpan(w.Span) })
			return inLine(fmt.Sprintf("quota %s has no window of %s; it has %s", id, notation.FormatSpan(span),
				cmp.Or(strings.Join(spans, ", "), "none")), ErrNotFound)
		}
		before, after, minute, err := adjust(&row.Quota, window)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `SELECT pacer.record_adjustment($1, $2, $3, $4, $5, $6)`, id, span, before, after, reason, minute)
		return err
	})
}
