package app

import (
	"context"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/notation"
)

const (
	// maxAdjusted bounds what a window is told that it has counted.
	maxAdjusted = 10_000_000_000
	// adjustWithin bounds the wait for the store, during which writers of quotas wait.
	adjustWithin = 5 * time.Second
)

// adjustQuota corrects a count in the store, and records it in the catalog.
func adjustQuota(ctx context.Context, admin *catalog.Admin, engine *limits.Engine, quota, reason string, a view.Adjustment) (done view.Adjusted, err error) {
	span, err := notation.ParseSpan(a.Span)
	if err != nil {
		return done, view.Fault(catalog.ErrInvalid, "span: %s", err)
	}
	if a.Used < 0 || a.Used > maxAdjusted {
		return done, view.Fault(catalog.ErrInvalid, "used must lie between 0 and %d", int64(maxAdjusted))
	}
	_, err = admin.AdjustQuota(ctx, quota, span, reason, func(q *delivery.Quota, window int) (before, after, minute int64, err error) {
		if q.Mode == delivery.ModeEventual {
			return 0, 0, 0, view.Fault(catalog.ErrInvalid, "quota %s is of mode eventual: the daemons count by themselves", quota)
		}
		if limit := q.Windows[window].Limit; a.Used > limit {
			return 0, 0, 0, view.Fault(catalog.ErrInvalid, "--used %d is more than window %s of quota %s allows, which is full with %d; raise its limit before",
				a.Used, notation.FormatSpan(span), quota, limit)
		}
		ctx, cancel := context.WithTimeout(ctx, adjustWithin)
		defer cancel()
		is, err := engine.Adjust(ctx, limits.Adjustment{Quota: q, Window: window, Used: a.Used, Lower: a.Lower})
		if err != nil {
			return 0, 0, 0, fmt.Errorf("redis.addrs: the quota store does not answer: %w", err)
		}
		if is.Used > a.Used {
			return 0, 0, 0, view.Fault(catalog.ErrInvalid, "window %s of quota %s has counted %d units: --used %d would make room for %d more; give --lower to allow it",
				notation.FormatSpan(span), quota, is.Before, a.Used, is.Before-a.Used)
		}
		done = view.Adjusted{Quota: quota, Window: notation.FormatSpan(span), Limit: q.Windows[window].Limit, Before: is.Before, Used: is.Used}
		return is.Before, is.Used, is.At / time.Minute.Microseconds(), nil
	})
	return done, err
}

// adjuster returns how the console corrects counts.
func adjuster(admin *catalog.Admin, engine *limits.Engine) func(context.Context, string, view.Adjustment) (view.Adjusted, error) {
	return func(ctx context.Context, quota string, a view.Adjustment) (view.Adjusted, error) {
		return adjustQuota(ctx, admin, engine, quota, catalog.ActorOf(ctx).Reason, a)
	}
}
