package notation

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// Day is always of 24 hours: spans are lengths of time, not dates.
	Day  = 24 * time.Hour
	week = 7 * Day
	// maxSpan is ten years, so that spans can be added up.
	maxSpan = 3660 * Day
)

// unitsOfTime are what spans are formatted in, the largest first. Weeks are read and not written: windows are known as 7d.
var unitsOfTime = []struct {
	name string
	span time.Duration
}{
	{"d", Day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", time.Nanosecond},
}

// ParseSpan reads a length of time: a duration as Go spells it, after whole weeks and days if there are any, such as 90s,
// 1h30m, 7d, 2w or 1d12h. It is not negative and at most ten years.
func ParseSpan(text string) (time.Duration, error) {
	rest, sum := strings.TrimSpace(text), time.Duration(0)
	for _, unit := range []struct {
		name string
		span time.Duration
	}{{"w", week}, {"d", Day}} {
		whole, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(whole, 10, 12) // of both units less than maxSpan can hold
		if errors.Is(err, strconv.ErrRange) {
			return 0, tooLong(text)
		}
		if err != nil {
			return 0, notASpan(text)
		}
		sum += time.Duration(n) * unit.span
		if rest = after; rest == "" {
			rest = "0"
		}
	}
	d, err := time.ParseDuration(rest)
	switch {
	case strings.ContainsAny(rest, "+-"):
		return 0, notASpan(text)
	case err != nil && overflows.MatchString(rest), err == nil && (d > maxSpan || sum+d > maxSpan):
		return 0, tooLong(text)
	case err != nil:
		return 0, notASpan(text)
	}
	return sum + d, nil
}

// overflows matches what time.ParseDuration refuses only because it is too long.
var overflows = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)

func tooLong(text string) error {
	return fmt.Errorf("%q is longer than %s", Shorten(text), FormatSpan(maxSpan))
}

func notASpan(text string) error {
	return fmt.Errorf("%q is not a length of time such as 90s, 1h or 7d", Shorten(text))
}

// Until rounds a time that is to come up to whole seconds: what lasts until then is over at what is shown. Times that have passed are
// rounded down.
func Until(at time.Time) time.Time {
	if whole := at.Truncate(time.Second); !whole.Equal(at) {
		return whole.Add(time.Second)
	}
	return at
}

// ParseUntil reads when something ends: a point in time as RFC 3339 writes it, or a span from now on. It must lie ahead.
func ParseUntil(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(text))
	ahead := at.After(now)
	if err != nil {
		span, err := ParseSpan(text)
		if err != nil {
			return at, fmt.Errorf("%q is neither a time such as 2026-11-30T09:00:00+03:00 nor a span from now on such as 2h", Shorten(text))
		}
		at, ahead = Until(now.Add(span)), span > 0
	}
	if !ahead {
		return at, fmt.Errorf("%s is not ahead; give a later time", Shorten(text))
	}
	return at, nil
}

// ParseTimeIn parses RFC 3339, or what the clocks of a zone show: 2026-12-01T18:00, or 18:00 for when they next do.
func ParseTimeIn(text string, zone *time.Location, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil && !at.IsZero() { // the zero time stands for none
			return at, nil
		}
	}
	minutes, err := parseClock(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 18:00, 2026-12-01T18:00 or 2026-12-01T18:00:00+03:00", Shorten(text))
	}
	year, month, day := now.In(zone).Date()
	at := time.Date(year, month, day, 0, minutes, 0, 0, zone)
	if !at.After(now) {
		at = time.Date(year, month, day+1, 0, minutes, 0, 0, zone)
	}
	return at, nil
}

// Instant formats a time in UTC, in whole seconds; "" for none.
func Instant(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// FormatSpan writes d in the largest unit that is exact: 1m, 1h, 7d, 90s, 250ms.
func FormatSpan(d time.Duration) string { return FormatSpanWithin(d, Day) }

// FormatSpanWithin is FormatSpan without units above the largest.
func FormatSpanWithin(d, largest time.Duration) string {
	for _, unit := range unitsOfTime {
		if d != 0 && unit.span <= largest && d%unit.span == 0 {
			return strconv.FormatInt(int64(d/unit.span), 10) + unit.name
		}
	}
	return "0s"
}

// Span is a flag that ParseSpan reads.
type Span time.Duration

// Set implements the interface of flags.
func (s *Span) Set(text string) error {
	d, err := ParseSpan(text)
	if err == nil {
		*s = Span(d)
	}
	return err
}

// String implements the interface of flags.
func (s *Span) String() string { return FormatSpan(time.Duration(*s)) }

// Type implements the interface of flags.
func (*Span) Type() string { return "duration" }
