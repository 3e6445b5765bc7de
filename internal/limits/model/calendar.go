package model

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Period is the calendar around an instant: where its period begins, where it ends, and where the next one ends;
// microseconds of store time. The zero Period is that of a window which begins at its first use.
type Period [3]int64

// Calendar tells whether the window follows a calendar.
func (p Period) Calendar() bool { return p[2] != 0 }

// at is the period that contains now. Beyond the known ones, periods are as long as the last of them.
func (p Period) at(now int64) (start, next int64) {
	switch {
	case now < p[0]:
		return min(now, p[0]-1), p[0]
	case now < p[1]:
		return p[0], p[1]
	case now < p[2]:
		return p[1], p[2]
	}
	length := p[2] - p[1]
	start = p[2] + (now-p[2])/length*length
	return start, start + length
}

// Anchor is where the windows of a calendar begin: every minute, hour, day, week (on Monday, ISO 8601) or month, in a
// time zone. The zero Anchor stands for first use.
type Anchor struct {
	unit string
	zone *time.Location
}

// nominal is the span of a window on each unit: its length, for months the longest.
var nominal = map[string]time.Duration{
	"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour, "month": 31 * 24 * time.Hour,
}

// ParseAnchor reads "" (first use), or a unit and a time zone, such as month@Europe/Moscow; without a zone, UTC.
func ParseAnchor(s string) (Anchor, error) {
	if s == "" {
		return Anchor{}, nil
	}
	unit, name, _ := strings.Cut(s, "@")
	if nominal[unit] == 0 {
		return Anchor{}, fmt.Errorf("anchor %q must be minute, hour, day, week or month, as in day@Europe/Moscow", s)
	}
	if name == "" {
		name = "UTC"
	}
	zone, err := location(name)
	if err != nil {
		return Anchor{}, fmt.Errorf("anchor %q: there is no time zone %q; use one such as Europe/Moscow", s, name)
	}
	return Anchor{unit: unit, zone: zone}, nil
}

// Span is how long the window must be, 0 where any length will do.
func (a Anchor) Span() time.Duration { return nominal[a.unit] }

// Period is the calendar around now, microseconds since the Unix epoch.
func (a Anchor) Period(now int64) Period {
	if a.unit == "" {
		return Period{}
	}
	start := a.begin(time.UnixMicro(now).In(a.zone))
	end := a.next(start)
	return Period{start.UnixMicro(), end.UnixMicro(), a.next(end).UnixMicro()}
}

// begin is the beginning of t's period.
func (a Anchor) begin(t time.Time) time.Time {
	y, m, d := t.Date()
	switch a.unit {
	case "minute", "hour": // zones differ from UTC by whole minutes, and a repeated hour is two hours
		_, offset := t.Zone()
		shift := time.Duration(offset) * time.Second
		return t.Add(shift).Truncate(nominal[a.unit]).Add(-shift)
	case "day":
	case "week":
		d -= (int(t.Weekday()) + 6) % 7
	case "month":
		d = 1
	}
	return time.Date(y, m, d, 0, 0, 0, 0, a.zone)
}

// next is the beginning of the period after the one that begins at t.
func (a Anchor) next(t time.Time) time.Time {
	y, m, d := t.Date()
	switch a.unit {
	case "day":
		d++
	case "week":
		d += 7
	case "month":
		m++
	default:
		return a.begin(t.Add(nominal[a.unit]))
	}
	return time.Date(y, m, d, 0, 0, 0, 0, a.zone)
}

var zones sync.Map // name to *time.Location

func location(name string) (*time.Location, error) {
	if l, ok := zones.Load(name); ok {
		return l.(*time.Location), nil
	}
	l, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	zones.Store(name, l)
	return l, nil
}
