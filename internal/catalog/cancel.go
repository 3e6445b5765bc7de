package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// CancelJobs records which jobs were cancelled: cancel cancels them, and returns their ids by campaign. If it returns an error, nothing is
// recorded. It may be called again.
func (a *Admin) CancelJobs(ctx context.Context, cancel func(ctx context.Context) (map[string][]string, error)) error {
	_, err := alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		done, err := cancel(ctx)
		if err != nil {
			return struct{}{}, err
		}
		for _, campaign := range slices.Sorted(maps.Keys(done)) {
			if _, err := tx.Exec(ctx, `SELECT pacer.record_cancel($1, $2)`, campaign, done[campaign]); err != nil {
				return struct{}{}, fmt.Errorf("the jobs are cancelled, and that could not be recorded: %w", err)
			}
		}
		return struct{}{}, nil
	})
	return err
}
