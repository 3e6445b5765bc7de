package delivery

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestFinish: what TestFinishIntegratesBack does not tell. A campaign that cannot send never ends, and one whose last job goes as its hours
// close does not wait for the next morning.
func TestFinish(t *testing.T) {
	now := instant(t, "2026-11-20T12:00:00Z") // a Friday
	working := hours(t, zone(t, "Europe/Moscow"), HoursSpan{
		Days: []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday}, From: at(9, 0), To: at(18, 0),
	})
	campaign := func(change func(c *Campaign)) *Campaign {
		c := &Campaign{ID: "c", Status: StatusActive, Rate: PerSecond(10)}
		change(c)
		return c
	}
	for name, tc := range map[string]struct {
		campaign *Campaign
		units    float64
		most     float64
		want     string // "" for never
	}{
		"nothing to do":         {campaign(func(*Campaign) {}), 0, Unbounded, "2026-11-20T12:00:00Z"},
		"at its rate":           {campaign(func(*Campaign) {}), 36_000, Unbounded, "2026-11-20T13:00:00Z"},
		"rate 0":                {campaign(func(c *Campaign) { c.Rate = Rate{} }), 1, Unbounded, ""},
		"paused":                {campaign(func(c *Campaign) { c.Status = StatusPaused }), 1, Unbounded, ""},
		"unusable":              {campaign(func(c *Campaign) { c.Invalid = "no such zone" }), 1, Unbounded, ""},
		"ends before":           {campaign(func(c *Campaign) { c.EndsAt = now.Add(time.Hour) }), 36_001, Unbounded, ""},
		"just in time":          {campaign(func(c *Campaign) { c.EndsAt = now.Add(time.Hour) }), 35_999, Unbounded, "2026-11-20T12:59:59.9Z"},
		"has ended":             {campaign(func(c *Campaign) { c.EndsAt = now }), 1, Unbounded, ""},
		"a million years":       {campaign(func(c *Campaign) { c.Rate = Rate{N: 1, Per: 1e12} }), 1e9, Unbounded, ""},
		"quota":                 {campaign(func(*Campaign) {}), 36_000, 5, "2026-11-20T14:00:00Z"},
		"quota of nothing":      {campaign(func(*Campaign) {}), 36_000, 0, ""},
		"until the hours close": {campaign(func(c *Campaign) { c.Hours = working }), 10 * 3600 * 3, Unbounded, "2026-11-20T15:00:00Z"},
		"weeks of hours, from Monday on": {
			campaign(func(c *Campaign) { c.Hours, c.StartsAt = working, now.Add(72*time.Hour) }), 10 * 3600 * (39 + 45 + 1), Unbounded,
			"2026-12-07T07:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := tc.campaign.Finish(now, tc.units, tc.most)
			if ok != (tc.want != "") {
				t.Fatalf("%s, %v; want %q", got, ok, tc.want)
			}
			if ok && got.Sub(instant(t, tc.want)).Abs() > time.Millisecond {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// drawPlan makes a campaign with any schedule.
func drawPlan(rt *rapid.T, now time.Time) *Campaign {
	c := &Campaign{ID: "c", Status: StatusActive, Rate: PerSecond(rapid.Int64Range(1, 1000).Draw(rt, "rate"))}
	if rapid.Bool().Draw(rt, "hours") {
		var spans []HoursSpan
		for range rapid.IntRange(1, 3).Draw(rt, "spans") {
			day := rapid.IntRange(0, 7).Draw(rt, "day")
			s := HoursSpan{From: rapid.IntRange(0, 1439).Draw(rt, "from"), To: rapid.IntRange(0, 1440).Draw(rt, "to")}
			if day < 7 {
				s.Days = []time.Weekday{time.Weekday(day)}
			}
			spans = append(spans, s)
		}
		c.Hours = hours(rt, zone(rt, rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"}).Draw(rt, "zone")), spans...)
	}
	around := func(label string) time.Time {
		return now.Add(time.Duration(rapid.Int64Range(-100, 100).Draw(rt, label)) * time.Hour)
	}
	if rapid.Bool().Draw(rt, "starts") {
		c.StartsAt = around("start")
	}
	if rapid.Bool().Draw(rt, "ramp") {
		c.Ramp = &Ramp{
			Start: rapid.Int64Range(rateScale/10, 500*rateScale).Draw(rt, "from"), Per: time.Second, Since: around("since"),
			Every: time.Duration(rapid.Int64Range(60, 100_000).Draw(rt, "every")) * time.Second,
		}
		if rapid.Bool().Draw(rt, "adds") {
			c.Ramp.Add = rapid.Int64Range(rateScale, 100*rateScale).Draw(rt, "add")
		} else {
			c.Ramp.Factor = rapid.Int64Range(11, 30).Draw(rt, "factor") * rateScale / 10
		}
	}
	return c
}

// sentUntil adds up, stretch by stretch, what the schedule and the bound let through.
func sentUntil(c *Campaign, now, end time.Time, most float64) (units float64) {
	for now.Before(end) {
		next := c.NextChange(now)
		if next.IsZero() || next.After(end) {
			next = end
		}
		if rate, _, _ := c.RateAt(now); c.Active(now) {
			units += next.Sub(now).Seconds() * min(rate.PerSecond(), most)
		}
		now = next
	}
	return units
}

// TestFinishIntegratesBack: what the schedule lets through until the finish is what there was to do.
func TestFinishIntegratesBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(rapid.Int64Range(1_780_000_000, 1_810_000_000).Draw(rt, "now"), 0)
		c := drawPlan(rt, now)
		most := Unbounded
		if rapid.Bool().Draw(rt, "bound") {
			most = float64(rapid.IntRange(1, 500).Draw(rt, "most"))
		}
		units := float64(rapid.Int64Range(1, 10_000_000).Draw(rt, "units"))
		end, ok := c.Finish(now, units, most)
		if !ok {
			if got := sentUntil(c, now, now.Add(finishWithin), most); got > units {
				rt.Fatalf("never, though %f of %f go within ten years", got, units)
			}
			return
		}
		if got := sentUntil(c, now, end, most); math.Abs(got-units) > 1e-3+units*1e-9 {
			rt.Fatalf("%f units until %s, want %f", got, end, units)
		}
		if more, ok := c.Finish(now, units*1.5, most); ok && more.Before(end) {
			rt.Fatalf("more takes until %s, less until %s", more, end)
		}
		c.EndsAt = end.Add(-time.Second)
		if at, ok := c.Finish(now, units, most); ok && c.EndsAt.After(now) {
			rt.Fatalf("ends at %s and is finished at %s", c.EndsAt, at)
		}
	})
}

// BenchmarkFinish is a backlog of ten years in working hours.
func BenchmarkFinish(b *testing.B) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	h, err := NewActiveHours([]HoursSpan{{From: at(9, 0), To: at(18, 0)}}, berlin)
	if err != nil {
		b.Fatal(err)
	}
	c := &Campaign{Status: StatusActive, Rate: PerSecond(1), Hours: h}
	for b.Loop() {
		c.Finish(time.Unix(1_780_000_000, 0), 10*365*9*3600, Unbounded)
	}
}
