package delivery

import (
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

// TestActiveHours goes from change to change; the first instant is where it looks from.
func TestActiveHours(t *testing.T) {
	weekdays := []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday}
	for name, tc := range map[string]struct {
		zone    string
		spans   []HoursSpan
		open    bool // at the first instant
		changes []string
	}{
		"weekdays": {
			"Europe/Moscow", []HoursSpan{{weekdays, at(9, 0), at(21, 0)}}, true,
			[]string{"2026-11-20T12:00:00+03:00", "2026-11-20T21:00:00+03:00", "2026-11-23T09:00:00+03:00", "2026-11-23T21:00:00+03:00"},
		},
		"past midnight, from Saturday into the next week": {
			"UTC", []HoursSpan{{[]time.Weekday{time.Saturday}, at(22, 0), at(2, 0)}}, false,
			[]string{"2026-11-20T00:00:00Z", "2026-11-21T22:00:00Z", "2026-11-22T02:00:00Z", "2026-11-28T22:00:00Z"},
		},
		"24 hours from noon": {
			"UTC", []HoursSpan{{[]time.Weekday{time.Monday}, at(12, 0), at(12, 0)}}, false,
			[]string{"2026-11-22T00:00:00Z", "2026-11-23T12:00:00Z", "2026-11-24T12:00:00Z", "2026-11-30T12:00:00Z"},
		},
		"until midnight, and over the turn of the week": {
			"UTC", []HoursSpan{{[]time.Weekday{time.Saturday}, 0, at(24, 0)}, {[]time.Weekday{time.Sunday}, 0, at(24, 0)}}, false,
			[]string{"2026-11-20T12:00:00Z", "2026-11-21T00:00:00Z", "2026-11-23T00:00:00Z"},
		},
		"opens with the week": {
			"UTC", []HoursSpan{{[]time.Weekday{time.Sunday}, 0, at(1, 0)}}, true,
			[]string{"2026-11-22T00:00:00Z", "2026-11-22T01:00:00Z", "2026-11-29T00:00:00Z"},
		},
		"spans that overlap are one": {
			"UTC", []HoursSpan{{nil, at(9, 0), at(12, 0)}, {nil, at(11, 0), at(13, 0)}, {nil, at(13, 0), at(14, 0)}}, false,
			[]string{"2026-11-20T08:59:59.5Z", "2026-11-20T09:00:00Z", "2026-11-20T14:00:00Z"},
		},
		"always": {"UTC", []HoursSpan{{nil, 0, at(24, 0)}}, true, []string{"2026-11-20T08:59:59Z", ""}},
		"none":   {"UTC", nil, true, []string{"2026-11-20T08:59:59Z", ""}},
		"Berlin springs over the beginning": { // 02:00 is followed by 03:00
			"Europe/Berlin", []HoursSpan{{nil, at(2, 30), at(4, 0)}}, false,
			[]string{"2026-03-29T00:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"Berlin springs over the end": {
			"Europe/Berlin", []HoursSpan{{nil, at(1, 0), at(2, 30)}}, false,
			[]string{"2026-03-29T00:00:00+01:00", "2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T01:00:00+02:00"},
		},
		"Berlin springs over all of it": {
			"Europe/Berlin", []HoursSpan{{nil, at(2, 0), at(3, 0)}}, true,
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-28T03:00:00+01:00", "2026-03-30T02:00:00+02:00", "2026-03-30T03:00:00+02:00"},
		},
		"Berlin falls back within": { // 02:59:59 is followed by 02:00
			"Europe/Berlin", []HoursSpan{{nil, at(1, 0), at(4, 0)}}, false,
			[]string{"2026-10-25T00:00:00+02:00", "2026-10-25T01:00:00+02:00", "2026-10-25T04:00:00+01:00"},
		},
		"Berlin shows an hour twice": {
			"Europe/Berlin", []HoursSpan{{nil, at(2, 0), at(3, 0)}}, false,
			[]string{"2026-10-25T00:00:00+02:00", "2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00", "2026-10-26T02:00:00+01:00"},
		},
		"Berlin shows half an hour twice": {
			"Europe/Berlin", []HoursSpan{{nil, at(2, 15), at(2, 45)}}, false,
			[]string{
				"2026-10-25T00:00:00+02:00", "2026-10-25T02:15:00+02:00", "2026-10-25T02:45:00+02:00",
				"2026-10-25T02:15:00+01:00", "2026-10-25T02:45:00+01:00", "2026-10-26T02:15:00+01:00",
			},
		},
		"Berlin falls back behind the end": {
			"Europe/Berlin", []HoursSpan{{nil, at(2, 30), at(4, 0)}}, false,
			[]string{
				"2026-10-25T00:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00",
				"2026-10-25T02:30:00+01:00", "2026-10-25T04:00:00+01:00",
			},
		},
		"Lord Howe springs by half an hour": { // 02:00 is followed by 02:30
			"Australia/Lord_Howe", []HoursSpan{{nil, at(2, 15), at(3, 0)}}, false,
			[]string{"2026-10-04T00:00:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-04T03:00:00+11:00"},
		},
		"Lord Howe falls back by half an hour": { // 01:59:59 is followed by 01:30
			"Australia/Lord_Howe", []HoursSpan{{nil, at(1, 40), at(1, 50)}}, false,
			[]string{
				"2026-04-05T00:00:00+11:00", "2026-04-05T01:40:00+11:00", "2026-04-05T01:50:00+11:00",
				"2026-04-05T01:40:00+10:30", "2026-04-05T01:50:00+10:30", "2026-04-06T01:40:00+10:30",
			},
		},
		"Beirut has no midnight": { // 00:00 is followed by 01:00
			"Asia/Beirut", []HoursSpan{{nil, at(23, 0), at(0, 30)}}, false,
			[]string{"2026-03-28T12:00:00+02:00", "2026-03-28T23:00:00+02:00", "2026-03-29T01:00:00+03:00", "2026-03-29T23:00:00+03:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := hours(t, zone(t, tc.zone), tc.spans...)
			now, open := instant(t, tc.changes[0]), tc.open
			if h.Active(now) != open {
				t.Fatalf("active is %v at %s", !open, now)
			}
			for _, want := range tc.changes[1:] {
				next := h.NextChange(now)
				if want == "" {
					if !next.IsZero() {
						t.Errorf("changes at %s", next)
					}
					break
				}
				if !next.Equal(instant(t, want)) {
					t.Fatalf("after %s: %s, want %s", now, next.In(zone(t, tc.zone)), want)
				}
				if now, open = next, !open; h.Active(now) != open || h.Active(now.Add(-1)) == open {
					t.Fatalf("active is %v from %s on", !open, now)
				}
			}
		})
	}
}

// TestTheNextChangeIsTheNext: against looking at every minute of the days around a change of the clocks.
func TestTheNextChangeIsTheNext(t *testing.T) {
	around := []string{
		"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-10-03T15:30:00Z", "2026-04-04T15:00:00Z", "2026-11-21T23:30:00Z",
		"2011-12-30T10:00:00Z", // Apia leaves out a Friday
	}
	zones := []string{"Europe/Berlin", "Australia/Lord_Howe", "UTC", "Asia/Beirut", "Pacific/Apia", "Asia/Kathmandu"}
	rapid.Check(t, func(rt *rapid.T) {
		minute := rapid.IntRange(0, minutesOfDay-1)
		var spans []HoursSpan
		for range rapid.IntRange(1, 4).Draw(rt, "spans") {
			days := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 3).Draw(rt, "days")
			s := HoursSpan{From: minute.Draw(rt, "from"), To: minute.Draw(rt, "to")}
			for _, d := range days {
				s.Days = append(s.Days, time.Weekday(d))
			}
			spans = append(spans, s)
		}
		h := hours(rt, zone(rt, rapid.SampledFrom(zones).Draw(rt, "zone")), spans...)
		middle := instant(rt, rapid.SampledFrom(around).Draw(rt, "around"))
		now := middle.Add(time.Duration(rapid.IntRange(-30*3600, 3600).Draw(rt, "before")) * time.Second)
		next, open := h.NextChange(now), h.Active(now)
		if !next.IsZero() && (!next.After(now) || h.Active(next) == open || h.Active(next.Add(-1)) != open) {
			rt.Fatalf("%s to %s is no change", now, next)
		}
		for m := now.Truncate(time.Minute).Add(time.Minute); m.Before(now.Add(9 * 24 * time.Hour)); m = m.Add(time.Minute) {
			if !next.IsZero() && !m.Before(next) {
				return
			}
			if h.Active(m) != open {
				rt.Fatalf("after %s: changes at %s, not at %s", now, m, next)
			}
		}
	})
}

func TestHoursThatMakeNoSense(t *testing.T) {
	many := make([]HoursSpan, MaxHoursSpans+1)
	for says, tc := range map[string]struct {
		spans []HoursSpan
		zone  *time.Location
	}{
		"at most 32 spans":        {many, time.UTC},
		"need a time_zone":        {many[:1], nil},
		"from must lie":           {[]HoursSpan{{From: minutesOfDay}}, time.UTC},
		"to between":              {[]HoursSpan{{To: minutesOfDay + 1}}, time.UTC},
		"not a day of the week":   {[]HoursSpan{{Days: []time.Weekday{7}}}, time.UTC},
		"between 00:00 and 24:00": {[]HoursSpan{{From: -1}}, time.UTC},
	} {
		if h, err := NewActiveHours(tc.spans, tc.zone); err == nil || !strings.Contains(err.Error(), says) {
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

// TestHoursGoOnAtTheEndOfLeapYears: there, a zone may say that its clocks change at a time that has passed.
func TestHoursGoOnAtTheEndOfLeapYears(t *testing.T) {
	cairo := zone(t, "Africa/Cairo")
	h := hours(t, cairo, HoursSpan{From: 9 * 60, To: 18 * 60})
	for year := 2028; year <= 2060; year += 4 {
		for hour := range 48 {
			now := time.Date(year, 12, 30, hour, 30, 0, 0, cairo)
			want := time.Date(now.Year(), now.Month(), now.Day(), 9, 0, 0, 0, cairo)
			for h.Active(want) == h.Active(now) || !want.After(now) {
				want = want.Add(9 * time.Hour) // 09:00, 18:00, and 03:00, which changes nothing
				if want.Hour() == 3 {
					want = want.Add(6 * time.Hour)
				}
			}
			if got := h.NextChange(now); !got.Equal(want) {
				t.Fatalf("after %s the hours change at %s, want %s", now, got.In(cairo), want)
			}
		}
	}
}
