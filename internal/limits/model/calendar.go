package model

import (
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// Period is the calendar around an instant: where its period begins, where it ends, and where the next one ends;
// microseconds of store time. The zero Period is that of a window which begins at its first use.
type Period [3]int64

// Calendar reports whether the window follows a calendar.
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

// AtRecipient ends the anchor of a window whose zone is that of each job's recipient. Where that is not known, it is UTC.
const AtRecipient = "@" + delivery.ZoneRecipient

// ParseAnchor reads "" (first use), or a unit and a time zone, such as month@Europe/Moscow; without a zone, UTC.
func ParseAnchor(s string) (Anchor, error) {
	if s == "" {
		return Anchor{}, nil
	}
	unit, name, _ := strings.Cut(s, "@")
	if nominal[unit] == 0 {
		return Anchor{}, fmt.Errorf("anchor %q must be minute, hour, day, week or month, as in day@Europe/Moscow", s)
	}
	if name == "" || name == delivery.ZoneRecipient {
		name = "UTC"
	}
	zone, err := notation.Zone(name)
	if err != nil {
		return Anchor{}, fmt.Errorf("anchor %q: there is no time zone %q; use one such as Europe/Moscow", s, name)
	}
	return Anchor{unit: unit, zone: zone}, nil
}

// Span is how long the window must be, 0 where any length will do.
func (a Anchor) Span() time.Duration { return nominal[a.unit] }

// Period is the calendar around now, microseconds since the Unix epoch. Its three boundaries ascend, even when the zone's clocks change.
func (a Anchor) Period(now int64) Period {
	if a.unit == "" {
		return Period{}
	}
	start := a.begin(time.UnixMicro(now).In(a.zone))
	end := a.next(start)
	return Period{start.UnixMicro(), end.UnixMicro(), a.next(end).UnixMicro()}
}

// begin is the beginning of the period that t is in.
func (a Anchor) begin(t time.Time) time.Time {
	if a.unit == "minute" || a.unit == "hour" {
		return a.beginClock(t)
	}
	// Clocks that are put back over midnight show the day before again, in a day that has begun.
	date := a.step(a.first(t), 1)
	for a.midnight(date).After(t) {
		date = a.step(date, -1)
	}
	return a.midnight(date)
}

// next is the beginning of the period after the one that begins at t. A day that the zone left out has no period.
func (a Anchor) next(t time.Time) time.Time {
	if a.unit == "minute" || a.unit == "hour" {
		return a.nextClock(t)
	}
	date := a.first(t)
	for !a.midnight(date).After(t) {
		date = a.step(date, 1)
	}
	return a.midnight(date)
}

// A date is a midnight in UTC that stands for its year, month and day.

// first is the first date of the period whose dates t's is among.
func (a Anchor) first(t time.Time) time.Time {
	y, m, d := t.Date()
	switch a.unit {
	case "week":
		d -= (int(t.Weekday()) + 6) % 7
	case "month":
		d = 1
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// step is the first date of the n-th period after one.
func (a Anchor) step(date time.Time, n int) time.Time {
	switch a.unit {
	case "week":
		return date.AddDate(0, 0, 7*n)
	case "month":
		return date.AddDate(0, n, 0)
	}
	return date.AddDate(0, 0, n)
}

// midnight is the first instant when the zone's calendar shows the date, or a later date if it leaves this one out: where clocks are put
// forward at midnight, a day begins at one o'clock.
func (a Anchor) midnight(date time.Time) time.Time { return notation.FirstShown(date, a.zone) }

// Minutes and hours begin whenever the clock shows a whole one, and where it is put forward over one. An hour that is
// repeated is two hours.

// whole is what the clock shows at t in whole minutes or hours; they are counted in the zone's own time.
func (a Anchor) whole(t time.Time) (count int64, into time.Duration) {
	shown, unit := t.UnixMicro()+notation.Offset(t).Microseconds(), nominal[a.unit].Microseconds()
	into = time.Duration((shown%unit+unit)%unit) * time.Microsecond
	return (shown - into.Microseconds()) / unit, into
}

// jumped reports whether a change of the clock at t begins a period.
func (a Anchor) jumped(t time.Time) bool {
	was, _ := a.whole(t.Add(-time.Microsecond))
	is, into := a.whole(t)
	return into == 0 || is > was
}

// nearby is longer than any hour, even one when clocks are put back.
const nearby = 3 * time.Hour

func (a Anchor) beginClock(t time.Time) time.Time {
	_, into := a.whole(t)
	change, changed := notation.ClockChange(t.Add(-nearby), t)
	switch begin := t.Add(-into); {
	case !changed || !begin.Before(change):
		return begin
	case a.jumped(change):
		return change
	}
	return a.beginClock(change.Add(-time.Microsecond))
}

func (a Anchor) nextClock(t time.Time) time.Time {
	_, into := a.whole(t)
	change, changed := notation.ClockChange(t, t.Add(nearby))
	switch next := t.Add(nominal[a.unit] - into); {
	case !changed || next.Before(change):
		return next
	case a.jumped(change):
		return change
	}
	return a.nextClock(change)
}
