package delivery

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"
)

const (
	minutesOfDay  = 24 * 60
	minutesOfWeek = 7 * minutesOfDay
	secondsOfWeek = 60 * minutesOfWeek
	// MaxHoursSpans is how many spans the active hours of a campaign may have.
	MaxHoursSpans = 32
	// avoidWithin is how many minutes before and after a minute of the hour that is avoided nothing is sent.
	avoidWithin = 2
)

// HoursSpan is a stretch of the wall clock on some days of the week, in minutes since midnight: from From on, until
// before To. A To that is not later than From lies on the next day, so that equal ones span 24 hours.
type HoursSpan struct {
	Days []time.Weekday // none: every day
	From int            // 0 to 1439
	To   int            // 0 to 1440
}

// ActiveHours are a campaign's sending hours in the week, in the wall-clock time of a time zone. Only wall-clock time counts: when clocks
// are put forward, the skipped hour does not exist and a span around it is shorter; when they are put back, the hour that is shown twice
// counts twice.
//
// NewActiveHours makes them; nil is always. They are immutable.
type ActiveHours struct {
	zone  *time.Location
	first bool    // whether they are open at the first minute of the week, on Sunday
	edges []int16 // minutes of the week, from 1 on and in order, with which they close or open in turn
}

// NewActiveHours makes the union of the spans, which is the whole week if there are none, without what is near the minutes of each hour to avoid.
// nil, for always, if there are neither.
func NewActiveHours(spans []HoursSpan, zone *time.Location, avoid ...int) (*ActiveHours, error) {
	if len(spans)+len(avoid) == 0 {
		return nil, nil
	}
	if len(spans) > MaxHoursSpans {
		return nil, fmt.Errorf("active_hours: at most %d spans; join some, such as days with the same hours", MaxHoursSpans)
	}
	if zone == nil {
		return nil, errors.New("active_hours need a time_zone, such as Europe/Moscow")
	}
	var week [minutesOfWeek]bool
	if len(spans) == 0 {
		spans = []HoursSpan{{}}
	}
	for _, s := range spans {
		if err := s.mark(&week); err != nil {
			return nil, err
		}
	}
	for _, minute := range avoid {
		if minute < 0 || minute > 59 {
			return nil, fmt.Errorf("avoid_minutes: %d is not a minute of the hour; use 0 to 59", minute)
		}
		for m := minute - avoidWithin; m < minute+avoidWithin; m++ {
			for hour := range minutesOfWeek / 60 {
				week[(m+60*hour+minutesOfWeek)%minutesOfWeek] = false
			}
		}
	}
	if !slices.Contains(week[:], true) {
		return nil, errors.New("avoid_minutes leave no minute to send in; avoid fewer")
	}
	h := &ActiveHours{zone: zone, first: week[0]}
	for m := 1; m < minutesOfWeek; m++ {
		if week[m] != week[m-1] {
			h.edges = append(h.edges, int16(m))
		}
	}
	return h, nil
}

// mark opens the minutes of the span.
func (s HoursSpan) mark(week *[minutesOfWeek]bool) error {
	if s.From < 0 || s.From >= minutesOfDay || s.To < 0 || s.To > minutesOfDay {
		return errors.New("active_hours: from must lie between 00:00 and 23:59, to between 00:00 and 24:00")
	}
	length := s.To - s.From
	if length <= 0 {
		length += minutesOfDay
	}
	days := s.Days
	if len(days) == 0 {
		days = []time.Weekday{0, 1, 2, 3, 4, 5, 6}
	}
	for _, day := range days {
		if day < time.Sunday || day > time.Saturday {
			return fmt.Errorf("active_hours: %d is not a day of the week", day)
		}
		begin := int(day)*minutesOfDay + s.From
		for m := begin; m < begin+length; m++ {
			week[m%minutesOfWeek] = true
		}
	}
	return nil
}

// In returns the same hours by the clocks of another zone.
func (h *ActiveHours) In(zone *time.Location) *ActiveHours {
	return &ActiveHours{zone: zone, first: h.first, edges: h.edges}
}

// lastOpening returns the first instant from at on by which the hours have been open, since at, in every zone of the world.
func (h *ActiveHours) lastOpening(at time.Time) time.Time {
	last := at
	for offset := -12; offset <= 14; offset++ {
		in := h.In(time.FixedZone("", offset*60*60))
		if opens := in.NextChange(at); !in.Active(at) && opens.After(last) {
			last = opens
		}
	}
	return last
}

// Active reports whether now lies within the hours.
func (h *ActiveHours) Active(now time.Time) bool {
	return h == nil || h.open(h.weekSecond(now)/60)
}

// NextChange is the first instant after now when Active changes; the zero time if it never does.
func (h *ActiveHours) NextChange(now time.Time) time.Time {
	if h == nil || len(h.edges) == 0 {
		return time.Time{}
	}
	active, at := h.Active(now), now
	for { // from one step of the zone's clocks to the next; weeks without one have an edge
		_, step := at.In(h.zone).ZoneBounds()
		change := h.nextEdge(at)
		if !step.IsZero() && !step.After(at) { // what ZoneBounds says at the ends of some leap years
			step = at.Add(time.Hour)
		}
		if step.IsZero() || change.Before(step) {
			return change
		}
		if h.Active(step) != active {
			return step.UTC()
		}
		at = step
	}
}

// nextEdge is the instant after at when the wall clock, if it were never put forward or back, shows the next edge.
func (h *ActiveHours) nextEdge(at time.Time) time.Time {
	second := h.weekSecond(at)
	minute := minutesOfWeek + int(h.edges[0])
	if h.first != h.open(minutesOfWeek-1) {
		minute = minutesOfWeek // the turn of the week is an edge as well
	}
	if i := h.passed(second / 60); i < len(h.edges) {
		minute = int(h.edges[i])
	}
	return time.Unix(at.Unix()+int64(minute*60-second), 0).UTC()
}

// open reports whether the minute of the week lies within the hours.
func (h *ActiveHours) open(minute int) bool { return h.first != (h.passed(minute)%2 == 1) }

// passed is how many edges lie at or before the minute of the week.
func (h *ActiveHours) passed(minute int) int {
	return sort.Search(len(h.edges), func(i int) bool { return int(h.edges[i]) > minute })
}

// weekSecond is what the wall clock shows, in seconds since the beginning of Sunday.
func (h *ActiveHours) weekSecond(at time.Time) int {
	_, offset := at.In(h.zone).Zone()
	const thursday = int64(time.Thursday) * 60 * minutesOfDay // 1 January 1970
	second := (at.Unix() + int64(offset) + thursday) % secondsOfWeek
	return int((second + secondsOfWeek) % secondsOfWeek)
}

// Weekly is how long the hours are open in a week without a shift of the clocks, and how often they open.
func (h *ActiveHours) Weekly() (open time.Duration, times int) {
	opened, minutes, from := h.first, 0, 0
	for _, edge := range h.edges {
		if opened {
			minutes += int(edge) - from
		}
		opened, from = !opened, int(edge)
	}
	if opened {
		minutes += minutesOfWeek - from
	}
	return time.Duration(minutes) * time.Minute, (len(h.edges) + 1) / 2
}
