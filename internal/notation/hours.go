package notation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// spanJSON is an element of campaigns.active_hours.
type spanJSON struct {
	Days []string `json:"days,omitempty"` // mon to sun; none: every day
	From string   `json:"from"`           // 09:00
	To   string   `json:"to"`             // up to 24:00; not later than from: on the next day
}

// weekdays are the spelled days, from Monday on.
var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

func dayNamed(name string) (index int, err error) {
	if index = slices.Index(weekdays, name); index < 0 {
		err = fmt.Errorf("%q is not a day; use mon, tue, wed, thu, fri, sat or sun", Shorten(name))
	}
	return index, err
}

func (r *spanJSON) parse() (s delivery.HoursSpan, err error) {
	for _, name := range r.Days {
		i, err := dayNamed(name)
		if err != nil {
			return s, err
		}
		s.Days = append(s.Days, time.Weekday((i+1)%7)) // which begin with Sunday
	}
	if s.From, err = parseClock(r.From); err == nil {
		s.To, err = parseClock(r.To)
	}
	return s, err
}

// DecodeHours reads campaigns.active_hours and avoid_minutes, which are of the zone; "" is none.
func DecodeHours(text, zone, avoid string) (*delivery.ActiveHours, error) {
	var raw []spanJSON
	if text != "" {
		if err := decodeStrictly(text, &raw); err != nil {
			return nil, fmt.Errorf(`active_hours must be such as [{"days": ["mon"], "from": "09:00", "to": "21:00"}]: %w`, err)
		}
	}
	location, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	minutes, err := ParseMinutes(avoid)
	if err != nil {
		return nil, err
	}
	spans := make([]delivery.HoursSpan, 0, len(raw))
	for _, r := range raw {
		s, err := r.parse()
		if err != nil {
			return nil, fmt.Errorf("active_hours: %w", err)
		}
		spans = append(spans, s)
	}
	return delivery.NewActiveHours(spans, location, minutes...)
}

// ParseMinutes reads campaigns.avoid_minutes, such as 0,15,30,45; none is nil.
func ParseMinutes(text string) (minutes []int, err error) {
	if text == "" || text == "none" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		m, err := strconv.ParseUint(strings.TrimSpace(part), 10, 8)
		if err != nil || m > 59 || len(minutes) == 60 {
			return nil, fmt.Errorf("avoid_minutes: %q must be up to 60 minutes of the hour, 0 to 59, such as 0,15,30,45", Shorten(text))
		}
		minutes = append(minutes, int(m))
	}
	return minutes, nil
}

// parseClock reads a time of the day, 00:00 to 24:00, in minutes.
func parseClock(text string) (int, error) {
	hour, minute, found := strings.Cut(text, ":")
	h, hourErr := strconv.ParseUint(hour, 10, 8)
	m, minuteErr := strconv.ParseUint(minute, 10, 8)
	if !found || len(hour) != 2 || len(minute) != 2 || hourErr != nil || minuteErr != nil || m > 59 || h*60+m > 24*60 {
		return 0, fmt.Errorf("%q is not a time of the day such as 09:00", Shorten(text))
	}
	return int(h*60 + m), nil
}

// ParseHours turns "mon-fri 09:00-21:00; sat,sun 10:00-18:00" into what campaigns.active_hours holds; none is nil.
// Without days, a span is of every day.
func ParseHours(words string) (json.RawMessage, error) {
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
			return nil, fmt.Errorf("%q must be such as mon-fri 09:00-21:00; sat 10:00-18:00", Shorten(strings.TrimSpace(part)))
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
			if !slices.Contains(days, weekdays[i]) {
				days = append(days, weekdays[i])
			}
			if i == end {
				break
			}
		}
	}
	return days, nil
}

// FormatHours spells what campaigns.active_hours holds as ParseHours reads it; what that could not read, as it is.
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
		for last < len(weekdays) && slices.Contains(days, weekdays[last]) {
			last++
		}
		if last-i >= 3 {
			words = append(words, weekdays[i]+"-"+weekdays[last-1])
		} else {
			words = append(words, weekdays[i:last]...)
		}
		i = last
	}
	return strings.Join(words, ",")
}

// decodeStrictly reads one JSON value without keys that to does not have.
func decodeStrictly(text string, to any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		return errors.New(shortenTo(err.Error(), 200)) // it may repeat a key
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind it")
	}
	return nil
}
