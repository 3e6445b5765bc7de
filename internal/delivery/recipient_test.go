package delivery

import (
	"testing"
	"time"
)

// twelve zones: some put their clocks forward and back, at night, at midnight or by half an hour, some are no whole hours from UTC.
var twelve = []string{
	"Europe/Kaliningrad", "Europe/Moscow", "Asia/Yekaterinburg", "Asia/Kamchatka", "Europe/Berlin", "America/New_York", "America/Santiago",
	"Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "Pacific/Kiritimati", "Asia/Beirut",
}

// TestOpensOverAYear: in every zone and at any time of a year, a job waits until the first instant when its recipient's clock is within the hours.
func TestOpensOverAYear(t *testing.T) {
	t.Parallel()
	days := []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Sunday}
	spans := []HoursSpan{{days, at(10, 0), at(20, 0)}, {[]time.Weekday{time.Saturday}, at(0, 30), at(2, 30)}}
	c := &Campaign{Local: hours(t, time.UTC, spans...)}
	const step = 15 * time.Minute
	begin, end := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2027-01-01T00:00:00Z")
	for _, name := range twelve {
		in, changes := zone(t, name), 0
		var opens time.Time // the first of the instants behind that is within
		for at := end.Add(72 * time.Hour); !at.Before(begin); at = at.Add(-step) {
			if within(at.In(in), spans, nil) {
				opens = at
			}
			if at.After(end) {
				continue
			}
			if got := c.Opens(&Job{Zone: in}, at); !got.Equal(opens) {
				t.Fatalf("%s: a job of %s is sent at %s, not %s", name, at.In(in), got.In(in), opens.In(in))
			}
			if _, before := at.Add(-step).In(in).Zone(); at.After(begin) {
				if _, now := at.In(in).Zone(); now != before {
					changes++
				}
			}
		}
		if changes != 0 && changes < 2 {
			t.Errorf("the clocks of %s are changed once in a year", name)
		}
	}
}

// TestTheZoneOfAJob: its own, else the campaign's for those without one; without both it is looked at once an hour.
func TestTheZoneOfAJob(t *testing.T) {
	now := instant(t, "2026-11-20T12:00:00Z") // 15:00 in Moscow, 21:00 in Tokyo
	c := &Campaign{Local: hours(t, time.UTC, HoursSpan{From: at(10, 0), To: at(20, 0)}), Zone: zone(t, "Asia/Tokyo")}
	held, always := &Campaign{Local: c.Local}, &Campaign{}
	moscow := &Job{Zone: zone(t, "Europe/Moscow")}
	for name, tc := range map[string]struct {
		campaign *Campaign
		job      *Job
		want     string
	}{
		"its own":                 {c, moscow, "2026-11-20T12:00:00Z"},
		"the campaign's":          {c, &Job{}, "2026-11-21T01:00:00Z"},
		"none":                    {held, &Job{}, "2026-11-20T13:00:00Z"},
		"its own, others wait":    {held, moscow, "2026-11-20T12:00:00Z"},
		"hours of no one's clock": {always, &Job{}, "2026-11-20T12:00:00Z"},
	} {
		if got := tc.campaign.Opens(tc.job, now); !got.Equal(instant(t, tc.want)) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestFinishEverywhere: a campaign in its recipients' zones lasts until the hours have begun in the last zone, and at least as long as if all were in one.
func TestFinishEverywhere(t *testing.T) {
	now := instant(t, "2026-11-20T12:00:00Z") // a Friday; 15:00 in Moscow
	weekdays := []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday}
	c := &Campaign{Status: StatusActive, Rate: PerSecond(10), Zone: zone(t, "Europe/Moscow")}
	for name, tc := range map[string]struct {
		span  HoursSpan
		units float64
		avoid []int
		ends  string
		want  string // "" for never
	}{
		"few jobs, and it has just closed in the east": {HoursSpan{From: at(10, 0), To: at(20, 0)}, 10, nil, "", "2026-11-21T02:00:00Z"}, // in UTC+8
		"over the weekend":      {HoursSpan{weekdays, at(10, 0), at(20, 0)}, 10, nil, "", "2026-11-23T02:00:00Z"},
		"hours that never end":  {HoursSpan{}, 36_000, nil, "", "2026-11-20T13:00:00Z"},
		"as much as in one day": {HoursSpan{From: at(10, 0), To: at(20, 0)}, 10 * 3600 * 10, nil, "", "2026-11-22T02:00:00Z"}, // by 15:00 tomorrow in Moscow
		"without a quarter":     {HoursSpan{}, 33_000, []int{0, 30}, "", "2026-11-20T13:03:28Z"},
		"ends before":           {HoursSpan{From: at(10, 0), To: at(20, 0)}, 10, nil, "2026-11-21T01:59:00Z", ""},
	} {
		one := *c
		one.Local = hours(t, time.UTC, tc.span)
		if tc.avoid != nil {
			one.Hours, _ = NewActiveHours(nil, time.UTC, tc.avoid...)
		}
		if tc.ends != "" {
			one.EndsAt = instant(t, tc.ends)
		}
		got, ok := one.Finish(now, tc.units, Unbounded)
		if ok != (tc.want != "") || ok && got.Sub(instant(t, tc.want)).Abs() > time.Minute {
			t.Errorf("%s: %s, %t, want %q", name, got, ok, tc.want)
		}
	}
}
