package command

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/progress"
)

// TestCampaignSchedules: what is set is shown, with what it means at the moment, and none takes it away.
func TestCampaignSchedules(t *testing.T) {
	d := newDesk(t, "")
	printed := d.run("campaign create spring --rate 600/m --ramp start=60,add=30,every=1h --time-zone Europe/Moscow",
		"--active-hours", "mon-sun 00:00-24:00")
	d.fields(printed, "rate 600/1m", "rate now 1/s", "active hours mon-sun 00:00-24:00 (Europe/Moscow)", "active now yes", "starts at -")
	contains(t, printed, "start=60,add=30,every=1h, since 20")
	day := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	tomorrow := day.Format(time.RFC3339)
	d.fields(d.run("campaign set spring --starts-at "+tomorrow+" --ends-at "+day.Add(time.Hour).Format(time.RFC3339)),
		"active now no: it begins at "+tomorrow, "next change "+tomorrow, "starts at "+tomorrow)
	d.fields(d.run("campaign set spring --starts-at none --ends-at 2026-01-01T00:00:00Z"),
		"active now no: it ended at 2026-01-01T00:00:00Z, and its jobs expire")
	d.fields(d.run("campaign set spring --ends-at none --ramp none --active-hours none"),
		"rate now 10/s", "ramp -", "active hours always", "active now yes", "next change -", "starts at -", "ends at -")
	for _, overflow := range []string{"block", "lane"} {
		d.fields(d.run("campaign set spring --overflow "+overflow), "overflow "+overflow)
	}
}

func TestCampaignShowAsJSON(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	at := time.Now().UTC().Add(2 * time.Hour)
	hours := at.Format("15:04") + "-" + at.Add(time.Hour).Format("15:04")
	got := read[view.Campaign](d, "campaign create spring --rate 5 --ramp start=2,factor=1.5,every=1h --active-hours "+hours)
	if got.NextChange == nil {
		t.Fatalf("%+v", got)
	}
	until := time.Until(*got.NextChange)
	if got.ActiveHours == "" || got.TimeZone != "UTC" || got.Ramp != "start=2,factor=1.5,every=1h" || got.Allowed != 0 || got.Held == nil ||
		until <= 58*time.Minute || until > 2*time.Hour {
		t.Errorf("%+v", got)
	}
}

func TestProgressInWords(t *testing.T) {
	for _, tc := range []struct {
		eta, percent *float64
		words, done  string
	}{
		{nil, nil, "-", "-"},
		{new(0.2), new(0.0), "0s", "0.0%"},
		{new(3599.6), new(99.95), "1h0m0s", "100.0%"},
		{new(86400.0), new(120.0), "1d0s", "120.0%"},
		{new(200_000.0), new(12.34), "2d7h0m0s", "12.3%"},
	} {
		g := &catalog.CampaignProgress{ETASeconds: tc.eta, Percent: tc.percent}
		if eta, done := formatETA(&view.Campaign{Progress: g}), formatPercent(g); eta != tc.words || done != tc.done {
			t.Errorf("%s and %s, want %s and %s", eta, done, tc.words, tc.done)
		}
	}
}

func TestHowFarOffATimeIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for off, want := range map[time.Duration]string{
			0: "(now)", 400 * time.Millisecond: "(now)", -400 * time.Millisecond: "(now)", 3 * time.Second: "(in 3s)", -time.Minute: "(1m0s ago)",
		} {
			at := time.Now().Add(off)
			if got := agoOrAhead(&at); !strings.HasSuffix(got, want) {
				t.Errorf("%s off: %q, want %q", off, got, want)
			}
		}
		if got := agoOrAhead(nil); got != "not known" {
			t.Errorf("%q", got)
		}
	})
}

// TestPlanWithoutAnEnd: a campaign without finish_by has none, and not one that is not known.
func TestPlanWithoutAnEnd(t *testing.T) {
	var out bytes.Buffer
	printPlan(&printer{w: &out}, &progress.Plan{Jobs: 3, SendRate: 10})
	if want := "jobs left\t3\nsend rate\t10/s\nfinish by\t-\ndone at\tnot known\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
