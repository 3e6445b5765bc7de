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
	// MaxAdjusted bounds what a window is told that it has counted.
	MaxAdjusted = 10_000_000_000
	// adjustWithin bounds the wait for the store, during which writers of quotas wait.
	adjustWithin = 5 * time.Second
)

// QuotaAdjustment corrects what a window of a quota has counted.
type QuotaAdjustment struct {
	Quota  string
	Span   time.Duration // of the window
	Reason string
	Used   int64 // units that it has counted from now on
	Lower  bool  // also where that is less than it has, which makes room
}

// AdjustQuota corrects a count in the store, and records it in the catalog.
func AdjustQuota(ctx context.Context, admin *catalog.Admin, engine *limits.Engine, a QuotaAdjustment) (done view.Adjusted, err error) {
	_, err = admin.AdjustQuota(ctx, a.Quota, a.Span, a.Reason, func(q *delivery.Quota, window int) (before, after, minute int64, err error) {
		if q.Mode == delivery.ModeEventual {
			return 0, 0, 0, view.Fault(catalog.ErrInvalid, "quota %s is of mode eventual: the daemons count by themselves", a.Quota)
		}
		if limit := q.Windows[window].Limit; a.Used > limit {
			return 0, 0, 0, view.Fault(catalog.ErrInvalid, "--used %d is more than window %s of quota %s allows, which is full with %d; raise its limit before",
				a.Used, notation.FormatSpan(a.Span), a.Quota, limit)
		}
		ctx, cancel := context.WithTimeout(ctx, adjustWithin)
		defer cancel()
		is, err := engine.Adjust(ctx, limits.Adjustment{Quota: q, Window: window, Used: a.Used, Lower: a.Lower})
		if err != nil {
			return 0, 0, 0, fmt.Errorf("redis.addrs: the quota store does not answer: %w", err)
		}
		if is.Used > a.Used {
			return 0, 0, 0, view.Fault(catalog.ErrInvalid, "window %s of quota %s has counted %d units: --used %d would make room for %d more; give --lower to allow it",
				notation.FormatSpan(a.Span), a.Quota, is.Before, a.Used, is.Before-a.Used)
		}
		done = view.Adjusted{Quota: a.Quota, Window: notation.FormatSpan(a.Span), Limit: q.Windows[window].Limit, Before: is.Before, Used: is.Used}
		return is.Before, is.Used, is.At / time.Minute.Microseconds(), nil
	})
	return done, err
}

// adjuster returns how the console corrects counts.
func adjuster(admin *catalog.Admin, engine *limits.Engine) func(context.Context, string, view.Adjustment) (view.Adjusted, error) {
	return func(ctx context.Context, quota string, a view.Adjustment) (view.Adjusted, error) {
		span, err := notation.ParseSpan(a.Span)
		if err != nil {
			return view.Adjusted{}, view.Fault(catalog.ErrInvalid, "span: %s", err)
		}
		if a.Used < 0 || a.Used > MaxAdjusted {
			return view.Adjusted{}, view.Fault(catalog.ErrInvalid, "used must lie between 0 and %d", int64(MaxAdjusted))
		}
		return AdjustQuota(ctx, admin, engine, QuotaAdjustment{Quota: quota, Span: span, Reason: catalog.ActorOf(ctx).Reason, Used: a.Used, Lower: a.Lower})
	}
}
