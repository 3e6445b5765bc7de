package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

const (
	// MaxWindows is how many windows a quota may have; the work of a script grows with them.
	MaxWindows = 16
	// MaxLog bounds what a log window remembers, since all of it is written with every take.
	MaxLog = 1_000
	// MaxKeyed bounds the limits of keyed quotas, whose counts are small for the sake of memory.
	MaxKeyed = 999_999
	// MaxEven is the greatest limit that can be spent evenly: what a timeline of slots can divide exactly.
	MaxEven = 1 << 36
)

// words are what the settings of a quota may be, the default first.
var words = map[string][]string{
	"on_store_failure": {delivery.PolicyClosed, delivery.PolicyLocalShare, delivery.PolicyOpen},
	"mode":             {delivery.ModeStrict, delivery.ModeShadow, delivery.ModeEventual},
	"spend":            {delivery.SpendGreedy, delivery.SpendEven},
	"unit":             {delivery.UnitUnits, delivery.UnitBytes},
}

var algorithms = []string{delivery.AlgorithmSliding, delivery.AlgorithmFixed, delivery.AlgorithmLog}

// WithDefaults is the quota with defaults in place of empty words. The given one stays as it is.
func WithDefaults(q delivery.Quota) delivery.Quota {
	q.OnStoreFailure = cmp.Or(q.OnStoreFailure, delivery.PolicyClosed)
	q.Mode = cmp.Or(q.Mode, delivery.ModeStrict)
	q.Spend = cmp.Or(q.Spend, delivery.SpendGreedy)
	q.Unit = cmp.Or(q.Unit, delivery.UnitUnits)
	q.Windows = WindowsWithDefaults(q.Windows)
	return q
}

// WindowsWithDefaults are the windows with the default in place of an empty algorithm. The given ones stay as they are.
func WindowsWithDefaults(windows []delivery.Window) []delivery.Window {
	if !slices.ContainsFunc(windows, func(w delivery.Window) bool { return w.Algorithm == "" }) {
		return windows
	}
	windows = slices.Clone(windows)
	for i := range windows {
		windows[i].Algorithm = cmp.Or(windows[i].Algorithm, delivery.AlgorithmSliding)
	}
	return windows
}

// CheckQuota refuses a quota that the engine cannot keep: the error says in one line which field is in the way and what
// it may hold.
func CheckQuota(q *delivery.Quota) error {
	for _, word := range [...]struct{ field, value string }{
		{"on_store_failure", q.OnStoreFailure}, {"mode", q.Mode}, {"spend", q.Spend}, {"unit", q.Unit},
	} {
		if err := CheckWord(word.field, word.value); err != nil {
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
		if q.Spend == delivery.SpendEven && w.Limit > MaxEven {
			return fmt.Errorf("window %s: a limit above 2^36 cannot be spent evenly; use spend greedy", notation.FormatWindow(w))
		}
	}
	if err := checkKeyed(q); err != nil {
		return err
	}
	if err := CheckWindows(q.Windows); err != nil {
		return err
	}
	if q.Per == "" && slices.ContainsFunc(q.Windows, func(w delivery.Window) bool { return strings.HasSuffix(w.Anchor, AtRecipient) }) {
		return ErrRecipient
	}
	return nil
}

// ErrRecipient is the last fault that CheckQuota looks for: windows by the recipient's zone in a quota that is not keyed.
var ErrRecipient = errors.New("windows: an anchor " + AtRecipient + " is for quotas with per; name a zone, as in day@Europe/Moscow")

// checkKeyed refuses what a quota by a key of the job cannot have.
func checkKeyed(q *delivery.Quota) error {
	switch {
	case q.Per == "":
		return nil
	case !delivery.ValidKeyName(q.Per):
		return fmt.Errorf("per %q must be 1 to 32 lower-case letters, digits and dashes, such as recipient", notation.Shorten(q.Per))
	case q.Mode != delivery.ModeStrict || q.Spend != delivery.SpendGreedy || q.Unit != delivery.UnitUnits || q.Exempt != 0:
		return errors.New("per: a keyed quota has mode strict, spend greedy, unit units and rollout 100; leave these as they are")
	case q.OnStoreFailure == delivery.PolicyLocalShare:
		return errors.New("on_store_failure: a keyed quota is closed or open; a daemon has no share of a key")
	}
	all := slices.Clone(q.Windows)
	for key, row := range q.Keys {
		if err := CheckWindows(row.Windows); err != nil {
			return fmt.Errorf("key %s: %w", notation.Shorten(key), err)
		}
		all = append(all, row.Windows...)
	}
	if i := slices.IndexFunc(all, func(w delivery.Window) bool { return w.Limit < 1 || w.Limit > MaxKeyed }); i >= 0 {
		return fmt.Errorf("window %s: the limit of a keyed quota must lie between 1 and %d; to stop single values, use pacer key hold",
			notation.FormatWindow(all[i]), MaxKeyed)
	}
	return nil
}

// CheckWord refuses a value that the field of a quota cannot have.
func CheckWord(field, value string) error {
	if allowed := words[field]; !slices.Contains(allowed, value) {
		return fmt.Errorf("%s %q must be one of %v", field, notation.Shorten(value), allowed)
	}
	return nil
}

// CheckWindows refuses windows that one quota cannot have.
func CheckWindows(windows []delivery.Window) error {
	if len(windows) > MaxWindows {
		return fmt.Errorf("at most %d windows per quota; leave out those that another one implies", MaxWindows)
	}
	for i, w := range windows {
		if err := checkWindow(w); err != nil {
			return fmt.Errorf("window %s: %w", notation.FormatWindow(w), err)
		}
		if slices.ContainsFunc(windows[:i], func(o delivery.Window) bool { return o.Span == w.Span }) {
			return fmt.Errorf("two windows of %s; keep the one with the lower limit", notation.FormatSpan(w.Span))
		}
	}
	return nil
}

func checkWindow(w delivery.Window) error {
	switch {
	case w.Span < time.Millisecond || w.Span > MaxSpan || w.Span%time.Microsecond != 0:
		return errors.New("the span must lie between 1ms and 366d, in whole microseconds")
	case w.Limit < 0 || w.Limit > MaxLimit:
		return errors.New("the limit must lie between 0 and 10^15")
	case !slices.Contains(algorithms, w.Algorithm):
		return fmt.Errorf("algorithm %q is not sliding, fixed or log", notation.Shorten(w.Algorithm))
	case w.Algorithm == delivery.AlgorithmLog && w.Limit > MaxLog:
		return fmt.Errorf("log remembers every grant, and is read and written with each; use sliding above %d units", MaxLog)
	case w.Anchor == "":
		return nil
	case w.Algorithm != delivery.AlgorithmFixed:
		return errors.New("an anchor goes with algorithm fixed only")
	}
	anchor, err := ParseAnchor(w.Anchor)
	if err == nil && anchor.Span() != w.Span {
		err = fmt.Errorf("the span must be the length of the unit, %s (of a month the longest, 31d)", notation.FormatSpan(anchor.Span()))
	}
	return err
}
