package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// maxSteps bounds one history.
const maxSteps = 10_000

// UsageStep is what the ledger says of a quota within one step of time.
type UsageStep struct {
	Start     time.Time         `json:"start"`
	End       time.Time         `json:"end"` // exclusive
	Units     int64             `json:"units"`
	Remaining []RemainingInSpan `json:"remaining"` // of each window, at the end of the step
}

// RemainingInSpan is how much of a window was left.
type RemainingInSpan struct {
	Span  string `json:"span"`
	Limit int64  `json:"limit"` // today's
	// Units are the limit less what was used within the span, at least 0; nil for windows shorter than the minutes that
	// the ledger counts in. Of a fixed window that begins at its first use they are a lower bound: the ledger does not
	// know when it began.
	Units *int64 `json:"units"`
}

// UsageHistory returns the units of the quota in steps from from to to, both rounded outwards to whole steps; a step is
// a whole number of minutes. The last step ends at to, in whole minutes. Reservations that are not used yet count as used.
func (a *Admin) UsageHistory(ctx context.Context, quota string, from, to time.Time, step time.Duration) ([]UsageStep, error) {
	switch {
	case step < time.Minute || step%time.Minute != 0:
		return nil, invalid("step %s must be a whole number of minutes, such as 1h", FormatSpan(max(step, 0)))
	case !from.Before(to):
		return nil, invalid("the history must end after it begins")
	case to.Sub(from)/step >= maxSteps:
		return nil, invalid("step %s is too short for %s; at most %d steps fit", FormatSpan(step), FormatSpan(to.Sub(from)), maxSteps)
	}
	row, err := a.GetQuota(ctx, quota)
	if err != nil {
		return nil, err
	}
	limit, err := row.Quota()
	if err != nil {
		return nil, err
	}
	from, to = from.UTC().Truncate(step), ceiling(to.UTC(), time.Minute)
	since := from
	for _, w := range limit.Windows {
		since = minTime(since, from.Add(-w.Span))
	}
	usage, err := readUsage(quota, minuteOf(since), minuteOf(to), func(read func(context.Context, *pgxpool.Pool) error) error {
		return a.with(ctx, read)
	})
	if err != nil {
		return nil, fmt.Errorf("read the usage of quota %s: %w", quota, err)
	}
	return historySteps(newTotals(usage), limit.Windows, from, to, step), nil
}

// historySteps cuts the time from from to to into steps.
func historySteps(used totals, windows []delivery.Window, from, to time.Time, step time.Duration) []UsageStep {
	var steps []UsageStep
	for start := from; start.Before(to); start = start.Add(step) {
		end := minTime(start.Add(step), to)
		s := UsageStep{Start: start, End: end, Units: used.between(start, end), Remaining: []RemainingInSpan{}}
		for _, w := range windows {
			remaining := RemainingInSpan{Span: FormatSpan(w.Span), Limit: w.Limit}
			if w.Span >= time.Minute {
				units := max(0, w.Limit-used.between(windowStart(w, end), end))
				remaining.Units = &units
			}
			s.Remaining = append(s.Remaining, remaining)
		}
		steps = append(steps, s)
	}
	return steps
}

// windowStart is since when a unit counts in the window, shortly before end.
func windowStart(w delivery.Window, end time.Time) time.Time {
	if w.Algorithm == delivery.AlgorithmFixed && w.Anchor != "" {
		if anchor, err := model.ParseAnchor(w.Anchor); err == nil {
			return time.UnixMicro(anchor.Period(end.UnixMicro() - 1)[0])
		}
	}
	return end.Add(-w.Span)
}

// totals are the units of a quota up to and including each of its minutes, in order.
type totals []delivery.Usage

// newTotals adds up usage, which is in the order of minutes.
func newTotals(usage []delivery.Usage) totals {
	sums := slices.Clone(usage)
	for i := 1; i < len(sums); i++ {
		sums[i].Units += sums[i-1].Units
	}
	return sums
}

// between is how many units lie in the minutes that begin at start or later and before end.
func (t totals) between(start, end time.Time) int64 { return t.before(end) - t.before(start) }

// before is how many units lie in the minutes that begin before the instant.
func (t totals) before(instant time.Time) int64 {
	first := minuteOf(ceiling(instant, time.Minute))
	i, _ := slices.BinarySearchFunc(t, first, func(u delivery.Usage, minute int64) int { return int(u.Minute - minute) })
	if i == 0 {
		return 0
	}
	return t[i-1].Units
}

// minuteOf is the minute that t lies in, counted since 1970.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// ceiling rounds up to a multiple of step.
func ceiling(t time.Time, step time.Duration) time.Time {
	if floor := t.Truncate(step); floor.Before(t) {
		return floor.Add(step)
	}
	return t
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
