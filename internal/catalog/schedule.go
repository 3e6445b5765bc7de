package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// spanJSON is an element of campaigns.active_hours.
type spanJSON struct {
	Days []string `json:"days,omitempty"` // mon to sun; none: every day
	From string   `json:"from"`           // 09:00
	To   string   `json:"to"`             // up to 24:00; not later than from: on the next day
}

// weekdays are the days as they are spelled, in the order in which people read them.
var weekdays = []struct {
	name string
	day  time.Weekday
}{
	{"mon", time.Monday}, {"tue", time.Tuesday}, {"wed", time.Wednesday}, {"thu", time.Thursday}, {"fri", time.Friday},
	{"sat", time.Saturday}, {"sun", time.Sunday},
}

func dayNamed(name string) (index int, err error) {
	for i, d := range weekdays {
		if d.name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("active_hours: %q is not a day; use mon, tue, wed, thu, fri, sat or sun", shorten(name))
}

// parseRamp reads campaigns.ramp of a campaign with the send_per.
func parseRamp(text string, per time.Duration, since time.Time) (*delivery.Ramp, error) {
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
		n, err := delivery.ParseMicros(field.text.String())
		if err != nil {
			return nil, fmt.Errorf("ramp: %s must be a number above 0 with at most six decimals, not %s",
				field.name, shorten(field.text.String()))
		}
		*field.to = n
	}
	var err error
	ramp.Every, err = parseEvery(raw.Every)
	return ramp, err
}

// everyUnits are the units of a ramp's every.
var everyUnits = map[string]time.Duration{
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "w": 7 * day,
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day,
}

// parseEvery reads a whole number and a unit: 30 seconds, 1 minute, 2h.
func parseEvery(text string) (time.Duration, error) {
	digits := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if digits > 0 {
		name := strings.TrimPrefix(text[digits:], " ")
		unit := everyUnits[name]
		if singular, found := strings.CutSuffix(name, "s"); found && len(singular) > 1 {
			unit = everyUnits[singular]
		}
		n, err := strconv.ParseUint(text[:digits], 10, 31)
		if every := time.Duration(n) * unit; err == nil && unit > 0 && every/unit == time.Duration(n) {
			return every, nil
		}
	}
	return 0, fmt.Errorf("ramp: every must be a number of seconds, minutes, hours, days or weeks, such as 1 minute, not %q",
		shorten(text))
}

// parseHours reads campaigns.active_hours.
func parseHours(text, zone string) (*delivery.ActiveHours, error) {
	var raw []spanJSON
	if err := decodeStrictly(text, &raw); err != nil {
		return nil, fmt.Errorf(`active_hours must be such as [{"days": ["mon"], "from": "09:00", "to": "21:00"}]: %w`, err)
	}
	location, err := loadZone(zone)
	if err != nil {
		return nil, err
	}
	spans := make([]delivery.HoursSpan, 0, len(raw))
	for _, r := range raw {
		var s delivery.HoursSpan
		for _, name := range r.Days {
			i, err := dayNamed(name)
			if err != nil {
				return nil, err
			}
			s.Days = append(s.Days, weekdays[i].day)
		}
		if s.From, err = parseClock(r.From); err != nil {
			return nil, err
		}
		if s.To, err = parseClock(r.To); err != nil {
			return nil, err
		}
		spans = append(spans, s)
	}
	return delivery.NewActiveHours(spans, location)
}

// parseClock reads a time of the day, 00:00 to 24:00, in minutes.
func parseClock(text string) (int, error) {
	hour, minute, found := strings.Cut(text, ":")
	h, hourErr := strconv.ParseUint(hour, 10, 8)
	m, minuteErr := strconv.ParseUint(minute, 10, 8)
	if !found || len(hour) != 2 || len(minute) != 2 || hourErr != nil || minuteErr != nil || m > 59 || h*60+m > 24*60 {
		return 0, fmt.Errorf("active_hours: %q is not a time of the day such as 09:00", shorten(text))
	}
	return int(h*60 + m), nil
}

var zones sync.Map // name to *time.Location; as many as there are zones

// loadZone finds a zone by its name.
func loadZone(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, fmt.Errorf("time_zone %q is not the name of a time zone; use one such as Europe/Moscow or UTC", shorten(name))
	}
	zones.Store(name, zone)
	return zone, nil
}

// decodeStrictly reads one JSON value without keys that to does not have.
func decodeStrictly(text string, to any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind it")
	}
	return nil
}

// ParseRampWords turns start=10,add=5,every=1m or start=10,factor=1.5,every=1m into what campaigns.ramp holds; none is
// nil.
func ParseRampWords(words string) (json.RawMessage, error) {
	if words = strings.TrimSpace(words); words == "" || words == "none" {
		return nil, nil
	}
	fields := map[string]any{}
	for part := range strings.SplitSeq(words, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		_, twice := fields[key]
		switch {
		case !found || twice || !slices.Contains([]string{"start", "add", "factor", "every"}, key):
			return nil, fmt.Errorf("%q must be such as start=10,add=5,every=1m or start=10,factor=1.5,every=1h", shorten(words))
		case key == "every":
			fields[key] = value
		default:
			n, err := delivery.ParseMicros(value)
			if err != nil {
				return nil, fmt.Errorf("%s must be a number above 0 with at most six decimals, not %q", key, shorten(value))
			}
			fields[key] = json.Number(formatMicros(n))
		}
	}
	return json.Marshal(fields)
}

// FormatRamp spells what campaigns.ramp holds as ParseRampWords reads it; what that could not read, as it is.
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

// ParseHoursWords turns "mon-fri 09:00-21:00; sat,sun 10:00-18:00" into what campaigns.active_hours holds; none is nil.
// Without days, a span is of every day.
func ParseHoursWords(words string) (json.RawMessage, error) {
	if words = strings.TrimSpace(words); words == "" || words == "none" {
		return nil, nil
	}
	var spans []spanJSON
	for part := range strings.SplitSeq(words, ";") {
		fields := strings.Fields(part)
		var s spanJSON
		if len(fields) == 2 {
			days, err := parseDays(fields[0])
			if err != nil {
				return nil, err
			}
			s.Days, fields = days, fields[1:]
		}
		var found bool
		if len(fields) == 1 {
			s.From, s.To, found = strings.Cut(fields[0], "-")
		}
		if !found {
			return nil, fmt.Errorf("%q must be such as mon-fri 09:00-21:00; sat 10:00-18:00", shorten(strings.TrimSpace(part)))
		}
		for _, clock := range []string{s.From, s.To} {
			if _, err := parseClock(clock); err != nil {
				return nil, err
			}
		}
		spans = append(spans, s)
	}
	return json.Marshal(spans)
}

// parseDays reads days and ranges of them: mon-fri, sat,sun, fri-mon.
func parseDays(text string) (days []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		i, err := dayNamed(first)
		if err != nil {
			return nil, err
		}
		end, err := dayNamed(last)
		if err != nil {
			return nil, err
		}
		for ; ; i = (i + 1) % len(weekdays) {
			if !slices.Contains(days, weekdays[i].name) {
				days = append(days, weekdays[i].name)
			}
			if i == end {
				break
			}
		}
	}
	return days, nil
}

// FormatHours spells what campaigns.active_hours holds as ParseHoursWords reads it; what that could not read, as it is.
func FormatHours(hours json.RawMessage) string {
	var raw []spanJSON
	if len(hours) == 0 {
		return ""
	}
	if err := decodeStrictly(string(hours), &raw); err != nil {
		return string(hours)
	}
	words := make([]string, len(raw))
	for i, s := range raw {
		if len(s.Days) > 0 {
			words[i] = formatDays(s.Days) + " "
		}
		words[i] += s.From + "-" + s.To
	}
	return strings.Join(words, "; ")
}

// formatDays spells three or more days in a row as a range.
func formatDays(days []string) string {
	var words []string
	for i := 0; i < len(weekdays); i++ {
		last := i
		for last < len(weekdays) && slices.Contains(days, weekdays[last].name) {
			last++
		}
		switch n := last - i; {
		case n >= 3:
			words = append(words, weekdays[i].name+"-"+weekdays[last-1].name)
		default:
			for _, d := range weekdays[i:last] {
				words = append(words, d.name)
			}
		}
		i = last
	}
	return strings.Join(words, ",")
}

// compact takes the spaces out of JSON that the database wrote.
func compact(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, []byte(*text)) != nil {
		return json.RawMessage(*text)
	}
	return b.Bytes()
}
