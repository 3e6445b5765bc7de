package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

// maxSteps bounds the number of steps of one history.
const maxSteps = 10_000

// Usage is what was used of a quota in the ledger within one step of time.
type Usage struct {
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"` // exclusive
	Units     int64     `json:"units"`
	Remaining []Left    `json:"remaining"` // of each window, at the end of the step
}

// Left is how much of a window was left.
type Left struct {
	Span  string `json:"span"`
	Limit int64  `json:"limit"` // the current limit
	// Units are the limit less the units used within the span, at least 0. They are nil for windows shorter than the ledger's steps:
	// minutes, and hours of old usage. For a fixed window that begins at its first use they are a lower bound: the ledger does not know
	// when it began.
	Units *int64 `json:"units,omitempty"`
}

// UsageHistory returns the units of the quota in steps between from and to, both rounded outwards to whole steps; a
// step is a whole number of minutes. The last step ends at to, in whole minutes. Use of
// an hour that is older than a day counts in its last minute.
func (a *Admin) UsageHistory(ctx context.Context, quota string, from, to time.Time, step time.Duration) ([]Usage, error) {
	switch {
	case step < time.Minute || step%time.Minute != 0:
		return nil, invalid("step %s must be a whole number of minutes, such as 1h", notation.FormatSpan(max(step, 0)))
	case !from.Before(to):
		return nil, invalid("the history must end after it begins")
	case to.Sub(from)/step >= maxSteps:
		return nil, invalid("step %s is too short for %s; at most %d steps fit", notation.FormatSpan(step), notation.FormatSpan(to.Sub(from)), maxSteps)
	}
	row, err := read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) (linkedQuota, error) { return oneLinked(ctx, pool, quota) })
	if err != nil {
		return nil, err
	}
	from, to = from.UTC().Truncate(step), ceiling(to.UTC(), time.Minute)
	since := from
	for _, w := range row.Windows {
		since = earlier(since, from.Add(-w.Span))
	}
	usage, err := a.database.usage(ctx, quota, minuteOf(since), minuteOf(to))
	if err != nil {
		return nil, err
	}
	return historySteps(newTotals(usage), row.Windows, from, to, step, time.Now().Add(-delivery.UsageKeptApart)), nil
}

// historySteps divides the time between from and to into steps. Of those before merged only the hours are known.
func historySteps(used totals, windows []delivery.Window, from, to time.Time, step time.Duration, merged time.Time) []Usage {
	var steps []Usage
	for start := from; start.Before(to); start = start.Add(step) {
		end := earlier(start.Add(step), to)
		counted := time.Minute
		if start.Before(merged) {
			counted = time.Hour
		}
		s := Usage{Start: start, End: end, Units: used.between(start, end), Remaining: []Left{}}
		for _, w := range windows {
			remaining := Left{Span: notation.FormatSpan(w.Span), Limit: w.Limit}
			if w.Span >= counted {
				units := max(0, w.Limit-used.between(windowStart(w, end), end))
				remaining.Units = &units
			}
			s.Remaining = append(s.Remaining, remaining)
		}
		steps = append(steps, s)
	}
	return steps
}

// windowStart returns the instant since which units count in the window, shortly before end.
func windowStart(w delivery.Window, end time.Time) time.Time {
	if w.Algorithm == delivery.AlgorithmFixed && w.Anchor != "" {
		if anchor, err := model.ParseAnchor(w.Anchor); err == nil {
			return time.UnixMicro(anchor.Period(end.UnixMicro() - 1)[0])
		}
	}
	return end.Add(-w.Span)
}

// totals are the cumulative units of a quota at each of its minutes, in order.
type totals []delivery.Usage

// newTotals sums up usage, which is in the order of minutes.
func newTotals(usage []delivery.Usage) totals {
	sums := slices.Clone(usage)
	for i := 1; i < len(sums); i++ {
		sums[i].Units += sums[i-1].Units
	}
	return sums
}

// between returns the units of the minutes that begin at start or later and before end.
func (t totals) between(start, end time.Time) int64 { return t.before(end) - t.before(start) }

// before returns the units of the minutes that begin before the instant.
func (t totals) before(instant time.Time) int64 {
	first := minuteOf(ceiling(instant, time.Minute))
	i, _ := slices.BinarySearchFunc(t, first, func(u delivery.Usage, minute int64) int { return int(u.Minute - minute) })
	if i == 0 {
		return 0
	}
	return t[i-1].Units
}

// minuteOf returns the minute that contains t, in minutes since the Unix epoch.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// ceiling rounds up to a multiple of step.
func ceiling(t time.Time, step time.Duration) time.Time { return t.Add(step - 1).Truncate(step) }

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }
