package notation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// rampJSON is campaigns.ramp: numbers of units per send_per, with at most six decimals.
type rampJSON struct {
	Start  json.Number `json:"start"`
	Add    json.Number `json:"add,omitempty"`
	Factor json.Number `json:"factor,omitempty"`
	Every  string      `json:"every"` // a whole number and a unit
}

// DecodeRamp reads campaigns.ramp of a campaign with the send_per.
func DecodeRamp(text string, per time.Duration, since time.Time) (*delivery.Ramp, error) {
	var raw rampJSON
	if err := decodeStrictly(text, &raw); err != nil {
		return nil, fmt.Errorf(`ramp must be such as {"start": 10, "add": 5, "every": "1 minute"}: %w`, err)
	}
	ramp := &delivery.Ramp{Per: per, Since: since}
	for _, field := range []struct {
		name string
		text json.Number
		to   *int64
	}{{"start", raw.Start, &ramp.Start}, {"add", raw.Add, &ramp.Add}, {"factor", raw.Factor, &ramp.Factor}} {
		if field.text == "" {
			continue
		}
		n, err := ParseMicros(field.text.String())
		if err != nil {
			return nil, fmt.Errorf("ramp: %s must be a number above 0 with at most six decimals, not %s",
				field.name, Shorten(field.text.String()))
		}
		*field.to = n
	}
	var err error
	ramp.Every, err = parseEvery(raw.Every)
	return ramp, err
}

// everyWords are the long names of units of time, without the s of their plurals.
var everyWords = map[string]string{"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}

// parseEvery reads a whole number and a unit: 30 seconds, 1 minute, 2h.
func parseEvery(text string) (time.Duration, error) {
	if digits := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }); digits > 0 {
		unit := strings.TrimPrefix(text[digits:], " ")
		if short, found := everyWords[strings.TrimSuffix(unit, "s")]; found {
			unit = short
		}
		if every, err := ParseSpan(text[:digits] + unit); err == nil && len(unit) == 1 {
			return every, nil
		}
	}
	return 0, fmt.Errorf("ramp: every must be a number of seconds, minutes, hours, days or weeks, such as 1 minute, not %q",
		Shorten(text))
}

// ParseRamp turns start=10,add=5,every=1m or start=10,factor=1.5,every=1m into what campaigns.ramp holds; none is
// nil.
func ParseRamp(words string) (json.RawMessage, error) {
	if words = strings.TrimSpace(words); words == "" || words == "none" {
		return nil, nil
	}
	fields := map[string]any{}
	for part := range strings.SplitSeq(words, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		_, twice := fields[key]
		switch {
		case !found || twice || !slices.Contains([]string{"start", "add", "factor", "every"}, key):
			return nil, fmt.Errorf("%q must be such as start=10,add=5,every=1m or start=10,factor=1.5,every=1h", Shorten(words))
		case key == "every":
			fields[key] = value
		default:
			n, err := ParseMicros(value)
			if err != nil {
				return nil, fmt.Errorf("%s must be a number above 0 with at most six decimals, not %q", key, Shorten(value))
			}
			fields[key] = json.Number(FormatMicros(n))
		}
	}
	return json.Marshal(fields)
}

// FormatRamp spells what campaigns.ramp holds as ParseRamp reads it; what that could not read, as it is.
func FormatRamp(ramp json.RawMessage) string {
	var raw rampJSON
	if len(ramp) == 0 {
		return ""
	}
	every, err := time.Duration(0), decodeStrictly(string(ramp), &raw)
	if err == nil {
		every, err = parseEvery(raw.Every)
	}
	if err != nil {
		return string(ramp)
	}
	step := "add=" + raw.Add.String()
	if raw.Factor != "" {
		step = "factor=" + raw.Factor.String()
	}
	return fmt.Sprintf("start=%s,%s,every=%s", raw.Start, step, FormatSpan(every))
}
