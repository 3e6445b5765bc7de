package limits

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	maxSpan  = 366 * 24 * time.Hour
	maxLimit = int64(1) << 50 // far below 2^53, so that sums stay exact in Lua
	maxID    = 256
)

// Bounds of what is remembered per grant, and of what a timeline of slots can divide exactly.
const (
	maxLogLimit  = 10_000
	maxEvenLimit = int64(1) << 36
)

// Validate says whether the engine can keep the quota, and if not, which field is in the way and what it may hold.
func Validate(q *delivery.Quota) error {
	if err := validQuota(q); err != nil {
		return fmt.Errorf("quota %s: %w", q.ID, err)
	}
	return nil
}

func validQuota(q *delivery.Quota) error {
	if err := validID(q.ID); err != nil {
		return err
	}
	for _, f := range []struct{ field, value, allowed string }{
		{"on_store_failure", q.OnStoreFailure, " closed local-share open "}, {"mode", q.Mode, " strict shadow eventual "},
		{"spend", q.Spend, " greedy even "}, {"unit", q.Unit, " units bytes "},
	} {
		if f.value != "" && !strings.Contains(f.allowed, " "+f.value+" ") {
			return fmt.Errorf("%s %q must be one of %v", f.field, f.value, strings.Fields(f.allowed))
		}
	}
	switch {
	case q.Exempt < 0 || q.Exempt > 100:
		return errors.New("rollout must be between 0 and 100 percent")
	case q.Unit == delivery.UnitBytes && q.Mode != delivery.ModeEventual:
		return errors.New("unit bytes goes together with mode eventual only; use units")
	case q.Shard < 0:
		return errors.New("shard must not be negative")
	case len(q.Windows) > maxWindows:
		return fmt.Errorf("%d windows; a quota has at most %d", len(q.Windows), maxWindows)
	}
	for i, w := range q.Windows {
		if err := validWindow(q, w); err != nil {
			return fmt.Errorf("window %s: %w", FormatSpan(w.Span), err)
		}
		for _, o := range q.Windows[:i] {
			if o.Span == w.Span {
				return fmt.Errorf("two windows of span %s; keep the lower one", FormatSpan(w.Span))
			}
		}
	}
	return nil
}

// maxWindows bounds the windows of a quota; a script's work grows with them.
const maxWindows = 16

// maxQuotas bounds the quotas of a campaign, for the same reason; the scripts count them in a byte.
const maxQuotas = 64

func validWindow(q *delivery.Quota, w delivery.Window) error {
	switch {
	case w.Span < time.Millisecond || w.Span > maxSpan || w.Span%time.Microsecond != 0:
		return fmt.Errorf("span must be between 1ms and %s, in whole microseconds", maxSpan)
	case w.Limit < 0 || w.Limit > maxLimit:
		return fmt.Errorf("limit must be between 0 and %d", maxLimit)
	case q.Spend == delivery.SpendEven && w.Limit > maxEvenLimit:
		return fmt.Errorf("limit must be at most %d to be spent evenly; use greedy", maxEvenLimit)
	case w.Anchor != "" && w.Algorithm != delivery.AlgorithmFixed:
		return errors.New("anchor goes together with algorithm fixed only; remove it")
	}
	switch w.Algorithm {
	case "", delivery.AlgorithmSliding:
	case delivery.AlgorithmLog:
		if w.Limit > maxLogLimit {
			return fmt.Errorf("a log remembers every grant, so its limit must be at most %d; use sliding", maxLogLimit)
		}
	case delivery.AlgorithmFixed:
		a, err := model.ParseAnchor(w.Anchor)
		if err != nil {
			return err
		}
		if a.Span() != 0 && a.Span() != w.Span {
			return fmt.Errorf("span must be %s with anchor %s", FormatSpan(a.Span()), w.Anchor)
		}
	default:
		return fmt.Errorf("algorithm %q must be one of sliding, fixed, log", w.Algorithm)
	}
	return nil
}

// validID holds ids to printable ASCII without spaces, which the scripts' formats rely on.
func validID(id string) error {
	if id == "" || len(id) > maxID {
		return fmt.Errorf("id must be 1 to %d characters long", maxID)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return errors.New("id must be printable ASCII without spaces")
		}
	}
	return nil
}

// validAsk says whether an ask can be put to the scripts at all.
func validAsk(a *delivery.Ask) error {
	if err := validID(a.Campaign.ID); err != nil {
		return fmt.Errorf("campaign %q: %w", a.Campaign.ID, err)
	}
	if n := len(a.Campaign.Quotas); n > maxQuotas {
		return fmt.Errorf("campaign %s: %d quotas; a campaign has at most %d", a.Campaign.ID, n, maxQuotas)
	}
	for _, q := range a.Campaign.Quotas {
		if err := Validate(q); err != nil {
			return err
		}
	}
	return nil
}

// FormatSpan spells a span in the largest exact unit: 1m, 1h, 7d, 500ms.
func FormatSpan(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= u.unit && d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dus", d.Microseconds())
}
