package delivery

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRateUntilFinishBy: the rate that spreads what is left counts until then, below that of the row and of the ramp.
func TestRateUntilFinishBy(t *testing.T) {
	now := instant(t, "2026-11-20T12:00:00Z")
	by := now.Add(time.Hour)
	for name, tc := range map[string]struct {
		change       func(c *Campaign)
		before, from float64 // units per second, until and from FinishBy on
	}{
		"spread":             {func(c *Campaign) { c.FinishRate = PerSecond(3) }, 3, 10},
		"not computed yet":   {func(*Campaign) {}, 1, 10},
		"above the rate":     {func(c *Campaign) { c.FinishRate = PerSecond(11) }, 10, 10},
		"of a slow campaign": {func(c *Campaign) { c.Rate = Rate{N: 1, Per: 4_000_000} }, 0.25, 0.25},
		"rate 0":             {func(c *Campaign) { c.Rate, c.FinishRate = Rate{}, PerSecond(3) }, 0, 0},
		"below the ramp": {func(c *Campaign) {
			c.FinishRate = PerSecond(3)
			c.Ramp = &Ramp{Start: 2 * rateScale, Add: 2 * rateScale, Per: time.Second, Every: 3 * time.Hour, Since: now}
		}, 2, 2},
	} {
		c := &Campaign{ID: "c", Status: StatusActive, Rate: PerSecond(10), Revision: 5, FinishBy: by}
		tc.change(c)
		early, late := c.At(by.Add(-time.Nanosecond)), c.At(by)
		if early.Rate.PerSecond() != tc.before || late.Rate.PerSecond() != tc.from {
			t.Errorf("%s: %s until then and %s after", name, early.Rate, late.Rate)
		}
		if late.Revision <= early.Revision || late.SetRevision() != 5 {
			t.Errorf("%s: revision %d until then and %d after, of row %d", name, early.Revision, late.Revision, late.SetRevision())
		}
		if again := late.At(by); again.Rate != late.Rate {
			t.Errorf("%s: %s of a campaign whose schedule is applied", name, again.Rate)
		}
		if next := c.NextChange(now); c.Ramp == nil && !next.Equal(by) {
			t.Errorf("%s: changes next at %s", name, next)
		}
	}
	c := &Campaign{ID: "c", Status: StatusActive, Rate: PerSecond(10), FinishBy: by, FinishRate: PerSecond(1)}
	if at, ok := c.Finish(now, 3600+100, Unbounded); !ok || at.Sub(by.Add(10*time.Second)).Abs() > time.Millisecond {
		t.Errorf("one a second for an hour and then ten: done at %s", at)
	}
	c.Hours = hours(t, time.UTC, HoursSpan{From: at(9, 0), To: at(12, 30)})
	c.FinishBy = now.Add(30 * 24 * time.Hour)
	if at, ok := c.Finish(now, 1800+30*12600, Unbounded); !ok || at.Sub(instant(t, "2026-12-20T12:03:00Z")).Abs() > time.Second {
		t.Errorf("in its hours, at another rate from noon of the last day: done at %s", at)
	}
}

// TestNeeded: what is needed is enough, and a hundredth less is not. A paused campaign needs what it will need.
func TestNeeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(rapid.Int64Range(1_780_000_000, 1_810_000_000).Draw(rt, "now"), 0)
		c := drawPlan(rt, now)
		c.FinishBy, c.FinishRate = now.Add(time.Hour), PerSecond(1) // which does not matter
		units := float64(rapid.Int64Range(1, 1_000_000).Draw(rt, "units"))
		until := now.Add(time.Duration(rapid.Int64Range(1, 300*3600).Draw(rt, "until")) * time.Second)
		needed, ok := c.Needed(now, until, units)
		free := c.WithoutFinish()
		switch got := sentUntil(free, now, until, needed); {
		case !ok && (needed != c.Rate.PerSecond() || got >= units*1.000001):
			rt.Fatalf("%f of %f go, and that is not enough", got, units)
		case !ok:
			return
		case got < units*0.999999:
			rt.Fatalf("%f of %f go", got, units)
		}
		if got := sentUntil(free, now, until, needed*0.99); got >= units {
			rt.Fatalf("%f of %f go at less", got, units)
		}
		c.Status = StatusPaused
		if again, ok := c.Needed(now, until, units); !ok || again != needed {
			rt.Fatalf("paused it needs %f, not %f", again, needed)
		}
	})
}

// TestHourly: any rate can be stored, and is hardly greater then.
func TestHourly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		perSecond := math.Pow(10, rapid.Float64Range(-7.49, 6).Draw(rt, "exponent"))
		rate, err := NewRate(Hourly(perSecond), time.Hour)
		if err != nil {
			rt.Fatal(err)
		}
		if got := rate.PerSecond(); got < perSecond*(1-1e-12) || got > max(perSecond*1.00001, perSecond+1/3600e6) {
			rt.Fatalf("%g becomes %g", perSecond, got)
		}
	})
	for _, far := range []float64{0, 1e-30, 1e9, math.Inf(1)} {
		if _, err := NewRate(Hourly(far), time.Hour); err != nil {
			t.Errorf("%g: %s", far, err)
		}
	}
}
