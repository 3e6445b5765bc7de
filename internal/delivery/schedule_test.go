package delivery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t rapid.TB, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func instant(t rapid.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func hours(t rapid.TB, zone *time.Location, spans ...HoursSpan) *ActiveHours {
	t.Helper()
	h, err := NewActiveHours(spans, zone)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// at is a time of the day in minutes.
func at(hour, minute int) int { return 60*hour + minute }

// within reports whether a wall clock lies in one of the spans, or there is none, and is not near a minute of the hour that is avoided.
func within(clock time.Time, spans []HoursSpan, avoid []int) bool {
	for _, minute := range avoid {
		if (clock.Minute()-minute+62)%60 < 4 {
			return false
		}
	}
	minute, today := at(clock.Hour(), clock.Minute()), clock.Weekday()
	for _, s := range spans {
		on := func(day time.Weekday) bool { return len(s.Days) == 0 || slices.Contains(s.Days, day) }
		if s.From < s.To {
			if on(today) && s.From <= minute && minute < s.To {
				return true
			}
		} else if on(today) && s.From <= minute || on((today+6)%7) && minute < s.To { // past midnight
			return true
		}
	}
	return len(spans) == 0
}

// followTheClock looks at the wall clock of a zone at each step, from one instant until another: the hours are active when it is within them,
// and their next change is the next of these.
func followTheClock(t rapid.TB, in *time.Location, spans []HoursSpan, avoid []int, from, until time.Time, step time.Duration) {
	t.Helper()
	h, err := NewActiveHours(spans, in, avoid...)
	if err != nil {
		t.Fatal(err)
	}
	open, next := within(from.In(in), spans, avoid), h.NextChange(from)
	for now := from; now.Before(until); now = now.Truncate(step).Add(step) {
		want := within(now.In(in), spans, avoid)
		if h.Active(now) != want {
			t.Fatalf("%v without %v: active is %v at %s", spans, avoid, !want, now.In(in))
		}
		if changes := want != open; changes && (!next.Equal(now) || h.Active(now.Add(-1)) == want) || !changes && !next.IsZero() && !next.After(now) {
			t.Fatalf("%v without %v: the next change is at %s, at %s the hours change: %v", spans, avoid, next.In(in), now.In(in), changes)
		}
		if want != open {
			open, next = want, h.NextChange(now)
		}
	}
}

// TestActiveHours compares any hours in any week, also beside a change of the clocks, with a look at every minute.
func TestActiveHours(t *testing.T) {
	around := []string{
		"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-10-03T15:30:00Z", "2026-04-04T15:00:00Z", "2026-11-21T23:30:00Z",
		"2011-12-30T10:00:00Z", // Apia leaves out a Friday
	}
	zones := []string{"Europe/Berlin", "Australia/Lord_Howe", "UTC", "Asia/Beirut", "Pacific/Apia", "Asia/Kathmandu"}
	sunday := instant(t, "2026-11-22T00:00:00Z")
	rapid.Check(t, func(rt *rapid.T) {
		minute := rapid.IntRange(0, minutesOfDay-1)
		var spans []HoursSpan
		for range rapid.IntRange(0, 4).Draw(rt, "spans") {
			days := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 3).Draw(rt, "days")
			s := HoursSpan{From: minute.Draw(rt, "from"), To: minute.Draw(rt, "to")}
			for _, d := range days {
				s.Days = append(s.Days, time.Weekday(d))
			}
			spans = append(spans, s)
		}
		avoid := rapid.SliceOfN(rapid.IntRange(0, 59), 0, 3).Draw(rt, "avoid")
		minutes := 0
		for m := range minutesOfWeek {
			if within(sunday.Add(time.Duration(m)*time.Minute), spans, avoid) {
				minutes++
			}
		}
		if minutes == 0 {
			rt.Skip("the hours are all avoided")
		}
		in := zone(rt, rapid.SampledFrom(zones).Draw(rt, "zone"))
		before := time.Duration(rapid.IntRange(-30*3600, 3600).Draw(rt, "before")) * time.Second
		from := instant(rt, rapid.SampledFrom(around).Draw(rt, "around")).Add(before)
		followTheClock(rt, in, spans, avoid, from, from.Add(8*24*time.Hour), time.Minute)
		if h, _ := NewActiveHours(spans, in, avoid...); h != nil {
			if open, _ := h.Weekly(); open != time.Duration(minutes)*time.Minute {
				rt.Fatalf("%v without %v: open for %s a week, want %d minutes", spans, avoid, open, minutes)
			}
		}
	})
}

// TestHoursBesideChangesOfTheClocks: spans that begin and end each quarter of an hour beside a change, within it and around it, and beside the
// turn of the week.
func TestHoursBesideChangesOfTheClocks(t *testing.T) {
	for change, name := range map[string]string{
		"2026-03-29T01:00:00Z": "Europe/Berlin",       // 02:00 is followed by 03:00
		"2026-10-25T01:00:00Z": "Europe/Berlin",       // 02:59:59 is followed by 02:00
		"2026-10-03T15:30:00Z": "Australia/Lord_Howe", // 02:00 is followed by 02:30
		"2026-04-04T15:00:00Z": "Australia/Lord_Howe", // 01:59:59 is followed by 01:30
		"2026-03-28T22:00:00Z": "Asia/Beirut",         // 00:00 is followed by 01:00
		"2026-11-22T00:00:00Z": "UTC",
	} {
		middle := instant(t, change)
		clock := middle.Add(-time.Second).In(zone(t, name))
		for from := -90; from <= 90; from += 15 {
			for to := -90; to <= 90; to += 15 {
				begin := at(clock.Hour(), clock.Minute()) + 1 + minutesOfDay
				s := HoursSpan{From: (begin + from) % minutesOfDay, To: (begin + to) % minutesOfDay}
				for _, days := range [][]time.Weekday{nil, {time.Saturday}, {time.Sunday}} {
					s.Days = days
					followTheClock(t, clock.Location(), []HoursSpan{s}, nil, middle.Add(-36*time.Hour), middle.Add(36*time.Hour), 15*time.Minute)
				}
			}
		}
	}
	for day := range minutesOfWeek / minutesOfDay { // hours of one whole day, and of two that touch
		whole := HoursSpan{[]time.Weekday{time.Weekday(day)}, 0, at(24, 0)}
		next := HoursSpan{[]time.Weekday{time.Weekday((day + 1) % 7)}, 0, at(24, 0)}
		from := instant(t, "2026-11-20T08:59:59.5Z")
		followTheClock(t, time.UTC, []HoursSpan{whole}, nil, from, from.Add(15*24*time.Hour), time.Hour)
		followTheClock(t, time.UTC, []HoursSpan{whole, next}, nil, from, from.Add(15*24*time.Hour), time.Hour)
	}
	cairo := zone(t, "Africa/Cairo") // at the end of leap years, it may say that its clocks change at a time that has passed
	for year := 2028; year <= 2060; year += 4 {
		from := time.Date(year, 12, 30, 0, 0, 0, 0, cairo)
		for hour := range 48 {
			begin := from.Add(time.Duration(hour) * time.Hour)
			followTheClock(t, cairo, []HoursSpan{{nil, at(9, 0), at(18, 0)}}, nil, begin, begin.Add(48*time.Hour), 30*time.Minute)
		}
	}
}

func TestHoursThatMakeNoSense(t *testing.T) {
	many := make([]HoursSpan, MaxHoursSpans+1)
	for says, tc := range map[string]struct {
		spans []HoursSpan
		zone  *time.Location
		avoid []int
	}{
		"at most 32 spans":        {many, time.UTC, nil},
		"need a time_zone":        {many[:1], nil, nil},
		"from must lie":           {[]HoursSpan{{From: minutesOfDay}}, time.UTC, nil},
		"to between":              {[]HoursSpan{{To: minutesOfDay + 1}}, time.UTC, nil},
		"not a day of the week":   {[]HoursSpan{{Days: []time.Weekday{7}}}, time.UTC, nil},
		"between 00:00 and 24:00": {[]HoursSpan{{From: -1}}, time.UTC, nil},
		"60 is not a minute":      {nil, time.UTC, []int{0, 60}},
		"-1 is not a minute":      {nil, time.UTC, []int{-1}},
		"leave no minute":         {nil, time.UTC, []int{2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58}},
		"avoid_minutes leave":     {[]HoursSpan{{From: at(10, 0), To: at(10, 2)}}, time.UTC, []int{0}},
	} {
		if h, err := NewActiveHours(tc.spans, tc.zone, tc.avoid...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", h, err, says)
		}
	}
}

// rates is what the campaign's rate is in force at each of the times after its ramp began.
func rates(c *Campaign, begin time.Time, after ...time.Duration) (list []string) {
	for _, d := range after {
		rate, _, _ := c.RateAt(begin.Add(d))
		list = append(list, rate.String())
	}
	return list
}

func TestRampSteps(t *testing.T) {
	since := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	minute := func(start, add, factor int64) *Ramp {
		return &Ramp{Start: start, Add: add, Factor: factor, Per: time.Second, Every: time.Minute, Since: since}
	}
	units := rateScale
	for name, tc := range map[string]struct {
		ramp    *Ramp
		ceiling Rate
		want    string
	}{
		"add":              {minute(10*units, 5*units, 0), PerSecond(22), "10/s 10/s 15/s 20/s 22/s 22/s"},
		"factor":           {minute(10*units, 0, 1_500_000), PerSecond(30), "10/s 10/s 15/s 22.5/s 30/s 30/s"},
		"small and slow":   {minute(1, 0, 1_000_001), Rate{3, 1_000_000_000_000}, "0.000001/s 0.000001/s 0.000002/s 0.000003/s 0.000003/s 0.000003/s"},
		"held":             {minute(10*units, 5*units, 0), Rate{}, "0/s 0/s 0/s 0/s 0/s 0/s"},
		"start at the top": {minute(30*units, 5*units, 0), PerSecond(22), "22/s 22/s 22/s 22/s 22/s 22/s"},
		"per minute": {
			&Ramp{Start: 60 * units, Add: 30 * units, Per: time.Minute, Every: time.Minute, Since: since}, PerSecond(3),
			"1/s 1/s 1.5/s 2/s 2.5/s 3/s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Campaign{Revision: 7, Rate: tc.ceiling, Ramp: tc.ramp}
			if err := tc.ramp.Validate(tc.ceiling); err != nil {
				t.Fatal(err)
			}
			times := []time.Duration{-time.Hour, time.Minute - 1, time.Minute, 2 * time.Minute, 3 * time.Minute, 1000 * time.Hour}
			if got := strings.Join(rates(c, since, times...), " "); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			c.StartsAt = since.Add(24 * time.Hour) // later than the ramp was set
			if got := strings.Join(rates(c, c.StartsAt, times...), " "); got != tc.want {
				t.Errorf("after starts_at: got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAStepIsARevision(t *testing.T) {
	since := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	c := &Campaign{ID: "c", Revision: 7, Rate: PerSecond(22), Ramp: &Ramp{
		Start: 10 * rateScale, Add: 5 * rateScale, Per: time.Second, Every: time.Minute, Since: since,
	}}
	now := since
	for step, rate := range []int64{10, 15, 20, 22} {
		got := c.At(now)
		if got.Revision != 7<<14+int64(step) || got.Rate != PerSecond(rate) || got.Ramp != nil || got.ID != "c" {
			t.Errorf("at %s: %+v", now, got)
		}
		next := c.NextChange(now)
		if last := step == 3; last != next.IsZero() || !last && !next.Equal(since.Add(time.Duration(step+1)*time.Minute)) {
			t.Fatalf("step %d: the next at %s", step, next)
		}
		now = next
	}
	changed := *c
	changed.Revision++
	if changed.At(since).Revision <= c.At(since.Add(time.Hour)).Revision {
		t.Error("a change of the row is not newer than the last step before it")
	}
	if at := (&Campaign{Revision: MaxRowRevision - 1}).At(now); at.Revision >= 1<<53 || at.Revision < 0 {
		t.Errorf("revision %d", at.Revision)
	}
}

func TestNextChange(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // a Friday
	c := &Campaign{
		Rate: PerSecond(5), StartsAt: now.Add(time.Hour), EndsAt: now.Add(72 * time.Hour),
		Hours: hours(t, time.UTC, HoursSpan{From: at(9, 0), To: at(21, 0)}),
	}
	for _, want := range []struct {
		after  time.Duration
		active bool
		ended  bool
	}{{time.Hour, true, false}, {9 * time.Hour, false, false}, {21 * time.Hour, true, false}, {33 * time.Hour, false, false}} {
		next := c.NextChange(now)
		if next.Sub(c.StartsAt.Add(-time.Hour)) != want.after || c.Active(next) != want.active || c.Ended(next) != want.ended {
			t.Fatalf("after %s: %s, active %v, ended %v", now, next, c.Active(next), c.Ended(next))
		}
		now = next
	}
	if end := c.EndsAt; c.Ended(end.Add(-1)) || !c.Ended(end) || !c.NextChange(end.Add(-time.Hour)).Equal(end) {
		t.Error("the end is no change")
	}
	// Tonight's and tomorrow's hours open before it starts.
	c.StartsAt = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	if next := c.NextChange(time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)); !next.Equal(c.StartsAt) {
		t.Errorf("the start is the first change, not %s", next)
	}
	if next := (&Campaign{Rate: PerSecond(5)}).NextChange(now); !next.IsZero() {
		t.Errorf("without a schedule: %s", next)
	}
}

// TestRampsRise: from the start, by the rule, never above the ceiling, up to the ceiling; and the next step is the next.
func TestRampsRise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		per := rapid.SampledFrom([]time.Duration{
			time.Millisecond, time.Second, 1001 * time.Microsecond, time.Minute, 24 * time.Hour, 366*24*time.Hour - time.Microsecond,
		}).Draw(rt, "per")
		micros := rapid.Int64Range(1, 1_000_000_000_000)
		ceiling, err := NewRate(micros.Draw(rt, "ceiling"), per)
		if err != nil {
			rt.Skip(err)
		}
		r := &Ramp{Start: micros.Draw(rt, "start"), Per: per, Since: time.Unix(1_700_000_000, 0)}
		if rapid.Bool().Draw(rt, "adds") {
			r.Add = micros.Draw(rt, "add")
		} else {
			r.Factor = rapid.OneOf(rapid.Int64Range(1_000_001, 2_000_000), rapid.Int64Range(1_000_001, maxRampFactor)).Draw(rt, "factor")
		}
		r.Every = time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(rt, "every"))
		c := &Campaign{Rate: ceiling, Ramp: r}
		if err := r.Validate(ceiling); err != nil {
			rt.Skip(err)
		}
		now, before := r.Since, Rate{}
		for want := int64(0); ; want++ {
			rate, step, next := c.RateAt(now)
			if rate.Zero() || rate.PerSecond() < before.PerSecond() || rate.PerSecond() > ceiling.PerSecond() || step != want {
				rt.Fatalf("step %d, want %d: %s after %s, under %s", step, want, rate, before, ceiling)
			}
			if next.IsZero() {
				if rate != ceiling {
					rt.Fatalf("ends at %s, not at %s", rate, ceiling)
				}
				break
			}
			if late, _, _ := c.RateAt(next.Add(-1)); late != rate || next.Sub(now) != r.Every {
				rt.Fatalf("the next step after %s is not at %s", now, next)
			}
			now, before = next, rate
		}
		if rate, _, next := c.RateAt(now.Add(1000 * r.Every)); rate != ceiling || !next.IsZero() {
			rt.Fatalf("%s after the ceiling", rate)
		}
	})
}

func TestRampsThatMakeNoSense(t *testing.T) {
	valid := Ramp{Start: rateScale, Add: rateScale, Per: time.Second, Every: time.Minute, Since: time.Unix(1, 0)}
	for says, change := range map[string]func(r *Ramp){
		"start must be above 0":        func(r *Ramp) { r.Start = 0 },
		"either add or factor":         func(r *Ramp) { r.Add = 0 },
		"add must be above 0":          func(r *Ramp) { r.Add = -1 },
		"factor must be above 1":       func(r *Ramp) { r.Add, r.Factor = 0, rateScale },
		"at most 100":                  func(r *Ramp) { r.Add, r.Factor = 0, 100*rateScale+1 },
		"every must lie":               func(r *Ramp) { r.Every = time.Millisecond },
		"ramp_since":                   func(r *Ramp) { r.Since = time.Time{} },
		"use a shorter send_per":       func(r *Ramp) { r.Add = maxRampHeight },
		"more than 10000 steps":        func(r *Ramp) { r.Add = 9_000 },
		"below one unit":               func(r *Ramp) { r.Start, r.Per = 1, 24*time.Hour },
		"start: send_per must":         func(r *Ramp) { r.Per = 1500 * time.Nanosecond; r.Start = 1 },
		"larger step or a longer ever": func(r *Ramp) { r.Add, r.Factor = 0, 1_000_001 },
	} {
		r := valid
		change(&r)
		if err := r.Validate(PerSecond(100)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", r, err, says)
		}
	}
	if err := valid.Validate(PerSecond(100)); err != nil {
		t.Error(err)
	}
}
