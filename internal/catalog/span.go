package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	day     = 24 * time.Hour
	maxSpan = 366 * day
	// maxWindows and maxQuotas are what the schema allows per quota and per campaign.
	maxWindows = 16
	maxQuotas  = 16
)

// units of time that spans are spelled in, the largest first.
var units = []struct {
	name string
	span time.Duration
}{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond},
}

// FormatSpan spells d in the largest unit that is exact: 1m, 1h, 7d, 90s, 250ms.
func FormatSpan(d time.Duration) string {
	for _, unit := range units {
		if d != 0 && d%unit.span == 0 {
			return strconv.FormatInt(int64(d/unit.span), 10) + unit.name
		}
	}
	return d.String()
}

// ParseSpan reads a length of time such as 90s, 1h30m or 7d.
func ParseSpan(s string) (time.Duration, error) {
	text := strings.TrimSpace(s)
	var days time.Duration
	if whole, rest, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(whole, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a length of time such as 90s, 1h or 7d", s)
		}
		days, text = time.Duration(n)*day, rest
		if text == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 10*maxSpan {
		return 0, fmt.Errorf("%q is not a length of time such as 90s, 1h or 7d", s)
	}
	return days + d, nil
}

// FormatWindow spells a window as limit/span, with :algorithm unless that is the default, and :anchor if there is one.
func FormatWindow(w delivery.Window) string {
	return spellWindow(w.Limit, FormatSpan(w.Span), w.Algorithm, w.Anchor)
}

func spellWindow(limit int64, span, algorithm, anchor string) string {
	s := strconv.FormatInt(limit, 10) + "/" + span
	if algorithm != "" && (algorithm != delivery.AlgorithmSliding || anchor != "") {
		s += ":" + shorten(algorithm)
	}
	if anchor != "" {
		s += ":" + shorten(anchor)
	}
	return s
}

// ParseWindows reads the windows of a quota: "300/1m,15750/1h". Each may name its algorithm and, if that is fixed,
// where in the calendar it begins: "100/1m:log,300000/1d:fixed:day@Europe/Moscow". Nothing but spaces is no window: a
// quota that does not bind.
func ParseWindows(s string) ([]delivery.Window, error) {
	windows := []delivery.Window{}
	if strings.TrimSpace(s) == "" {
		return windows, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		w, err := parseWindow(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		windows = append(windows, w)
	}
	return windows, checkWindows(windows)
}

func parseWindow(s string) (delivery.Window, error) {
	limits, span, found := strings.Cut(s, "/")
	if !found {
		return delivery.Window{}, fmt.Errorf("window %q must be limit/span, such as 300/1m", s)
	}
	w := delivery.Window{Algorithm: delivery.AlgorithmSliding}
	if text, rest, found := strings.Cut(span, ":"); found {
		span = text
		w.Algorithm, w.Anchor, _ = strings.Cut(rest, ":")
	}
	var err error
	if w.Limit, err = strconv.ParseInt(strings.TrimSpace(limits), 10, 64); err != nil {
		return delivery.Window{}, fmt.Errorf("window %q: the limit must be a whole number, such as 300/1m", s)
	}
	if w.Span, err = ParseSpan(span); err != nil {
		return delivery.Window{}, fmt.Errorf("window %q: %w", s, err)
	}
	return w, checkWindow(w)
}

// checkWindows refuses sets of windows that the schema would refuse.
func checkWindows(windows []delivery.Window) error {
	if len(windows) > maxWindows {
		return fmt.Errorf("windows: at most %d per quota; leave out those that another one implies", maxWindows)
	}
	seen := make(map[time.Duration]bool, len(windows))
	for _, w := range windows {
		if err := checkWindow(w); err != nil {
			return err
		}
		if seen[w.Span] {
			return errors.New("windows: two windows of " + FormatSpan(w.Span) + "; keep the one with the lower limit")
		}
		seen[w.Span] = true
	}
	return nil
}

// formatMicros spells millionths as a decimal number without trailing zeros.
func formatMicros(n int64) string {
	s := fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
