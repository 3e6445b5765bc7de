package app

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
)

func (d *desk) setCampaign(id string, flags CampaignFlags) string {
	d.t.Helper()
	return d.run(func(in Invocation) error { return CampaignSet(d.t.Context(), in, id, &flags) })
}

// TestCampaignSchedules: what is set is shown, with what it means at the moment, and none takes it away.
func TestCampaignSchedules(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	printed := d.run(func(in Invocation) error {
		return CampaignCreate(t.Context(), in, "spring", &CampaignFlags{
			Rate: new("600/m"), Ramp: new("start=60,add=30,every=1h"), ActiveHours: new("mon-sun 00:00-24:00"), TimeZone: new("Europe/Moscow"),
		})
	})
	for _, line := range []string{
		"rate 600/1m", "rate now 1/s", "active hours mon-sun 00:00-24:00 (Europe/Moscow)", "active now yes", "starts at -",
	} {
		d.fields(printed, line)
	}
	if !strings.Contains(printed, "start=60,add=30,every=1h, since 20") {
		t.Error(printed)
	}
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	printed = d.setCampaign("spring", CampaignFlags{
		StartsAt: new(tomorrow.Format(time.RFC3339)), EndsAt: new(tomorrow.Add(time.Hour).Format(time.RFC3339)),
	})
	for _, line := range []string{
		"active now no: it has not begun", "next change " + tomorrow.Format(time.RFC3339), "starts at " + tomorrow.Format(time.RFC3339),
	} {
		d.fields(printed, line)
	}
	printed = d.setCampaign("spring", CampaignFlags{StartsAt: new("none"), EndsAt: new("2026-01-01T00:00:00Z")})
	d.fields(printed, "active now no: it has ended, its jobs expire")
	printed = d.setCampaign("spring", CampaignFlags{EndsAt: new("none"), Ramp: new("none"), ActiveHours: new("none")})
	for _, line := range []string{
		"rate now 10/s", "ramp -", "active hours always", "active now yes", "next change -", "starts at -", "ends at -",
	} {
		d.fields(printed, line)
	}
	for _, overflow := range []string{"block", "lane"} {
		d.fields(d.setCampaign("spring", CampaignFlags{Overflow: &overflow}), "overflow "+overflow)
	}
}

func TestCampaignShowAsJSON(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.in.JSON = true
	at := time.Now().UTC().Add(2 * time.Hour)
	hours := at.Format("15:04") + "-" + at.Add(time.Hour).Format("15:04")
	printed := d.run(func(in Invocation) error {
		return CampaignCreate(t.Context(), in, "spring", &CampaignFlags{Rate: new("5"), ActiveHours: &hours, Ramp: new("start=2,factor=1.5,every=1h")})
	})
	var got struct {
		ActiveHours []map[string]any `json:"active_hours"`
		TimeZone    string           `json:"time_zone"`
		Ramp        map[string]any   `json:"ramp"`
		Now         struct {
			Rate       float64   `json:"rate"`
			Active     bool      `json:"active"`
			NextChange time.Time `json:"next_change"`
		} `json:"now"`
	}
	if err := json.Unmarshal([]byte(printed), &got); err != nil {
		t.Fatal(err)
	}
	until := time.Until(got.Now.NextChange)
	if len(got.ActiveHours) != 1 || got.TimeZone != "UTC" || got.Ramp["factor"] != 1.5 || got.Now.Rate != 2 || got.Now.Active ||
		until <= 58*time.Minute || until > time.Hour {
		t.Errorf("%s", printed)
	}
}

// TestWhatAScheduleSaysNow: out of hours is not the same as not begun, and what comes next is said.
func TestWhatAScheduleSaysNow(t *testing.T) {
	ramp, err := catalog.ParseRampWords("start=2,factor=1.5,every=1h")
	if err != nil {
		t.Fatal(err)
	}
	hours, err := catalog.ParseHoursWords("mon-fri 09:00-21:00")
	if err != nil {
		t.Fatal(err)
	}
	friday := time.Date(2026, 11, 20, 20, 30, 0, 0, time.UTC)
	row := catalog.CampaignRow{
		ID: "c", SendRate: "5", SendPer: "1s", Status: delivery.StatusActive, Overflow: delivery.OverflowLane, PriorityWeight: 1,
		ActiveHours: hours, TimeZone: "UTC", Ramp: ramp, RampSince: &friday,
	}
	for _, tc := range []struct {
		at     time.Time
		words  string
		rate   float64
		change time.Time
	}{
		{friday, "yes", 2, friday.Add(30 * time.Minute)},
		{friday.Add(30 * time.Minute), "no: outside its active hours", 2, friday.Add(time.Hour)},
		{friday.Add(90 * time.Minute), "no: outside its active hours", 3, friday.Add(2 * time.Hour)},
		{friday.Add(9 * time.Hour), "no: outside its active hours", 5, time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)},
	} {
		now := currentOf(row.Campaign(), tc.at)
		if now.words() != tc.words || now.Rate != tc.rate || now.NextChange == nil || !now.NextChange.Equal(tc.change) {
			t.Errorf("at %s: %s, %v/s, until %v", tc.at, now.words(), now.Rate, now.NextChange)
		}
	}
	row.TimeZone = "Nowhere"
	if c := row.Campaign(); !strings.Contains(c.Invalid, "time_zone") {
		t.Errorf("%+v", c)
	}
}

// TestRampsShowInTheGauge: the rate exported is the one in force.
func TestRampsShowInTheGauge(t *testing.T) {
	m := catalog.NewMemory()
	ramp := &delivery.Ramp{Start: 2_000_000, Add: 1_000_000, Per: time.Second, Every: time.Minute, Since: time.Now().Add(-90 * time.Second)}
	m.PutCampaign(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(100), Ramp: ramp})
	g, err := newCampaignGauges(m.Snapshot, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	g.show(m.Snapshot())
	for after, want := range map[time.Duration]float64{90 * time.Second: 3, 200 * time.Second: 5, 24 * time.Hour: 100} {
		g.step(ramp.Since.Add(after))
		if got := testutil.ToFloat64(g.rate.WithLabelValues("c")); got != want {
			t.Errorf("%v/s after %s, want %v", got, after, want)
		}
	}
}
