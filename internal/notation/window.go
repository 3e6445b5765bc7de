package notation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// ParseWindows reads the windows of a quota: "300/1m,15750/1h". Each may name its algorithm and, if that is fixed,
// where in the calendar it begins: "100/1m:log,300000/1d:fixed:day@Europe/Moscow". Nothing but spaces is no window: a
// quota that does not bind.
func ParseWindows(text string) ([]delivery.Window, error) {
	windows := []delivery.Window{}
	if strings.TrimSpace(text) == "" {
		return windows, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		w, err := parseWindow(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		windows = append(windows, w)
	}
	return windows, nil
}

func parseWindow(text string) (delivery.Window, error) {
	limit, span, found := strings.Cut(text, "/")
	if !found {
		return delivery.Window{}, fmt.Errorf("window %q must be limit/span, such as 300/1m", Shorten(text))
	}
	w := delivery.Window{Algorithm: delivery.AlgorithmSliding}
	if before, rest, found := strings.Cut(span, ":"); found {
		span = before
		w.Algorithm, w.Anchor, _ = strings.Cut(rest, ":")
	}
	var err error
	switch w.Limit, err = strconv.ParseInt(strings.TrimSpace(limit), 10, 64); {
	case errors.Is(err, strconv.ErrRange):
		return delivery.Window{}, fmt.Errorf("window %q: the limit is out of range; give one such as 300", Shorten(text))
	case err != nil:
		return delivery.Window{}, fmt.Errorf("window %q: the limit must be a whole number, such as 300/1m", Shorten(text))
	}
	if w.Span, err = ParseSpan(span); err != nil {
		return delivery.Window{}, fmt.Errorf("window %q: %w", Shorten(text), err)
	}
	return w, nil
}

// FormatWindow writes a window as limit/span, with :algorithm unless that is the default, and :anchor if there is one.
func FormatWindow(w delivery.Window) string {
	s := strconv.FormatInt(w.Limit, 10) + "/" + FormatSpan(w.Span)
	if w.Algorithm != "" && (w.Algorithm != delivery.AlgorithmSliding || w.Anchor != "") {
		s += ":" + Shorten(w.Algorithm)
	}
	if w.Anchor != "" {
		s += ":" + Shorten(w.Anchor)
	}
	return s
}
