package command

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
)

// TestCampaignSchedules: what is set is shown, with what it means at the moment, and none takes it away.
func TestCampaignSchedules(t *testing.T) {
	d := newDesk(t, "")
	printed := d.run("campaign create spring --rate 600/m --ramp start=60,add=30,every=1h --time-zone Europe/Moscow",
		"--active-hours", "mon-sun 00:00-24:00")
	for _, line := range []string{
		"rate 600/1m", "rate now 1/s", "active hours mon-sun 00:00-24:00 (Europe/Moscow)", "active now yes", "starts at -",
	} {
		d.fields(printed, line)
	}
	if !strings.Contains(printed, "start=60,add=30,every=1h, since 20") {
		t.Error(printed)
	}
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	printed = d.run("campaign set spring --starts-at " + tomorrow.Format(time.RFC3339) + " --ends-at " + tomorrow.Add(time.Hour).Format(time.RFC3339))
	for _, line := range []string{
		"active now no: it begins at " + tomorrow.Format(time.RFC3339), "next change " + tomorrow.Format(time.RFC3339), "starts at " + tomorrow.Format(time.RFC3339),
	} {
		d.fields(printed, line)
	}
	printed = d.run("campaign set spring --starts-at none --ends-at 2026-01-01T00:00:00Z")
	d.fields(printed, "active now no: it ended at 2026-01-01T00:00:00Z, and its jobs expire")
	printed = d.run("campaign set spring --ends-at none --ramp none --active-hours none")
	for _, line := range []string{
		"rate now 10/s", "ramp -", "active hours always", "active now yes", "next change -", "starts at -", "ends at -",
	} {
		d.fields(printed, line)
	}
	for _, overflow := range []string{"block", "lane"} {
		d.fields(d.run("campaign set spring --overflow "+overflow), "overflow "+overflow)
	}
}

func TestCampaignShowAsJSON(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	at := time.Now().UTC().Add(2 * time.Hour)
	hours := at.Format("15:04") + "-" + at.Add(time.Hour).Format("15:04")
	printed := d.run("campaign create spring --rate 5 --json --ramp start=2,factor=1.5,every=1h --active-hours " + hours)
	var got view.Campaign
	if err := json.Unmarshal([]byte(printed), &got); err != nil {
		t.Fatal(err)
	}
	if got.NextChange == nil {
		t.Fatal(printed)
	}
	until := time.Until(*got.NextChange)
	if got.ActiveHours == "" || got.TimeZone != "UTC" || got.Ramp != "start=2,factor=1.5,every=1h" || got.Allowed != 0 || got.Held == nil || until <= 58*time.Minute || until > 2*time.Hour {
		t.Errorf("%s", printed)
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
		if got := formatETA(&view.Campaign{Progress: g}); got != tc.words {
			t.Errorf("%s, want %s", got, tc.words)
		}
		if got := formatPercent(g); got != tc.done {
			t.Errorf("%s, want %s", got, tc.done)
		}
	}
}

// TestCampaignsAreDeletedOnceAndForAll: --yes is required without a terminal.
func TestCampaignsAreDeletedOnceAndForAll(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.run("campaign create spring --rate 5")
	for line, says := range map[string]string{
		"campaign delete spring":       "give --yes to delete campaign spring",
		"campaign delete spring --yes": "only cancelled and completed campaigns are deleted",
	} {
		if code, _, stderr := d.fails(line); code != 2 || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, %s", line, code, stderr)
		}
	}
	d.run("campaign cancel spring --yes")
	if out := d.run("campaign delete spring --yes"); out != "deleted campaign spring, which had delivered 0 jobs\n" {
		t.Error(out)
	}
	if out := d.run("campaign list --json"); out != "[]\n" {
		t.Error(out)
	}
}
