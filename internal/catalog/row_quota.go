package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// What the schema allows of limits.
const (
	// maxLimit keeps every sum of counts below 2^53.
	maxLimit = 1_000_000_000_000_000
	// maxLog bounds what a log window remembers.
	maxLog = 10_000
	// maxEven is the greatest limit that can be spent evenly.
	maxEven = 1 << 36
)

// The words a quota's settings may be.
var (
	failurePolicies = []string{delivery.PolicyClosed, delivery.PolicyLocalShare, delivery.PolicyOpen}
	quotaModes      = []string{delivery.ModeStrict, delivery.ModeShadow, delivery.ModeEventual}
	spendWays       = []string{delivery.SpendGreedy, delivery.SpendEven}
	quotaUnits      = []string{delivery.UnitUnits, delivery.UnitBytes}
	algorithms      = []string{delivery.AlgorithmSliding, delivery.AlgorithmFixed, delivery.AlgorithmLog}
)

// checkQuota refuses a quota that the quota engine cannot keep.
func checkQuota(q *delivery.Quota) error {
	for _, word := range []struct {
		field, value string
		allowed      []string
	}{
		{"on_store_failure", q.OnStoreFailure, failurePolicies}, {"mode", q.Mode, quotaModes},
		{"spend", q.Spend, spendWays}, {"unit", q.Unit, quotaUnits},
	} {
		if err := checkWord(word.field, word.value, word.allowed); err != nil {
			return err
		}
	}
	switch {
	case q.Unit == delivery.UnitBytes && q.Mode != delivery.ModeEventual:
		return fmt.Errorf("unit %q is for mode %q; use %q", q.Unit, delivery.ModeEventual, delivery.UnitUnits)
	case q.Exempt < 0 || q.Exempt > 100:
		return fmt.Errorf("rollout must lie between 0 and 100 percent, not %d", 100-q.Exempt)
	case q.Shard < 0:
		return fmt.Errorf("shard must not be negative (%d)", q.Shard)
	}
	for _, w := range q.Windows {
		if err := checkWindow(w); err != nil {
			return err
		}
		if q.Spend == delivery.SpendEven && w.Limit > maxEven {
			return fmt.Errorf("window %s: a limit above 2^36 cannot be spent evenly; use spend greedy", FormatWindow(w))
		}
	}
	return nil
}

// checkWord refuses a value that is not one of the allowed words.
func checkWord(field, value string, allowed []string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("%s %q must be one of %v", field, shorten(value), allowed)
	}
	return nil
}

// checkWindow refuses a window that the quota engine cannot keep.
func checkWindow(w delivery.Window) error {
	switch {
	case w.Span < time.Millisecond || w.Span > maxSpan:
		return fmt.Errorf("window %s: the span must lie between 1ms and 366d", FormatWindow(w))
	case w.Limit < 0 || w.Limit > maxLimit:
		return fmt.Errorf("window %s: the limit must lie between 0 and 10^15", FormatWindow(w))
	case !slices.Contains(algorithms, w.Algorithm):
		return fmt.Errorf("window %s: algorithm %q is not sliding, fixed or log", FormatWindow(w), shorten(w.Algorithm))
	case w.Algorithm == delivery.AlgorithmLog && w.Limit > maxLog:
		return fmt.Errorf("window %s: log remembers every grant; use sliding above %d units", FormatWindow(w), maxLog)
	}
	return checkAnchor(w)
}

// checkAnchor refuses an anchor that the window cannot follow.
func checkAnchor(w delivery.Window) error {
	if w.Anchor == "" {
		return nil
	}
	if w.Algorithm != delivery.AlgorithmFixed {
		return fmt.Errorf("window %s: an anchor goes with algorithm fixed only", FormatWindow(w))
	}
	anchor, err := model.ParseAnchor(w.Anchor)
	if err != nil {
		return fmt.Errorf("window %s: %w", FormatWindow(w), err)
	}
	if anchor.Span() != w.Span {
		return fmt.Errorf("window %s: the span must be the length of the unit, %s (of a month the longest, 31d)",
			FormatWindow(w), FormatSpan(anchor.Span()))
	}
	return nil
}
