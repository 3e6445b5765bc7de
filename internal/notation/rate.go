package notation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// ParseRate reads "500", "2.5", "150/m", "1/h", "20/100ms": units and an optional period (s, m, h, d, w, or a span);
// without one, per second. It returns the units in millionths and the period, as the catalog keeps them.
func ParseRate(text string) (micros int64, period time.Duration, err error) {
	units, per, found := strings.Cut(strings.TrimSpace(text), "/")
	if !found {
		per = "s"
	}
	if len(per) == 1 {
		per = "1" + per
	}
	if period, err = ParseSpan(per); err != nil {
		return 0, 0, fmt.Errorf("rate %q: the period after / must be s, m, h, d or a duration such as 100ms", Shorten(text))
	}
	if micros, err = ParseMicros(units); err == nil {
		_, err = delivery.NewRate(micros, period)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("rate %q: %w", Shorten(text), err)
	}
	return micros, period, nil
}

// ParseMicros reads a decimal number that is not negative, with at most six decimals, into millionths.
func ParseMicros(text string) (int64, error) {
	if strings.HasPrefix(text, "-") {
		return 0, errors.New("must not be negative; 0 holds the campaign")
	}
	if strings.ContainsAny(text, "eE") {
		if _, err := strconv.ParseFloat(text, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			return 0, errors.New("must be written out, without an exponent, such as 1000")
		}
	}
	whole, fraction, _ := strings.Cut(text, ".")
	if len(fraction) > 6 {
		return 0, errors.New("at most six decimals")
	}
	w, err := strconv.ParseUint(whole, 10, 40)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("is above 1000000 per second")
	}
	f, errFraction := strconv.ParseUint((fraction + "000000")[:6], 10, 32)
	if err != nil || errFraction != nil {
		return 0, errors.New("must be a number such as 500, 2.5 or 150/m")
	}
	return int64(w)*1_000_000 + int64(f), nil
}

// FormatMicros writes millionths as a decimal number without trailing zeros.
func FormatMicros(n int64) string {
	s := fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
