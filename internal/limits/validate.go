package limits

import (
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	maxSpan  = 366 * 24 * time.Hour
	maxLimit = int64(1) << 50 // far below 2^53, so that sums stay exact in Lua
	maxID    = 256
)

// ErrUnsupported marks a quota that asks for something this engine does not do.
var ErrUnsupported = errors.New("not supported")

// Validate says whether the engine can keep the quota, and if not, which field is in the way and what it may hold.
func Validate(q *delivery.Quota) error {
	if err := validID(q.ID); err != nil {
		return fmt.Errorf("quota %q: %w", q.ID, err)
	}
	if q.Mode == "shadow" {
		return fmt.Errorf("quota %s: mode %q is %w; use strict", q.ID, q.Mode, ErrUnsupported)
	}
	if q.Spend == "even" {
		return fmt.Errorf("quota %s: spend %q is %w; use greedy", q.ID, q.Spend, ErrUnsupported)
	}
	for i, w := range q.Windows {
		if err := validWindow(w); err != nil {
			return fmt.Errorf("quota %s: window %s: %w", q.ID, FormatSpan(w.Span), err)
		}
		for _, o := range q.Windows[:i] {
			if o.Span == w.Span {
				return fmt.Errorf("quota %s: two windows of span %s; keep the lower one", q.ID, FormatSpan(w.Span))
			}
		}
	}
	return nil
}

func validWindow(w delivery.Window) error {
	switch {
	case w.Algorithm != "" && w.Algorithm != "sliding":
		return fmt.Errorf("algorithm %q is %w; use sliding", w.Algorithm, ErrUnsupported)
	case w.Span < time.Millisecond || w.Span > maxSpan || w.Span%time.Microsecond != 0:
		return fmt.Errorf("span must be between 1ms and %s, in whole microseconds", maxSpan)
	case w.Limit < 0 || w.Limit > maxLimit:
		return fmt.Errorf("limit must be between 0 and %d", maxLimit)
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
