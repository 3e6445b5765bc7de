package page

import (
	"math"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// TestEveryPageTakesARole: a page or a form without one would be for everybody. Only the form for logging in is.
func TestEveryPageTakesARole(t *testing.T) {
	for name, p := range pages {
		if p.role < auth.Viewer && name != "login" {
			t.Errorf("page %q takes no role", name)
		}
	}
	for name, a := range actions {
		if a.role < auth.Operator {
			t.Errorf("form %q takes the role %s", name, a.role)
		}
	}
	if len(pages) < 20 || len(actions) < 15 {
		t.Errorf("%d pages and %d forms", len(pages), len(actions))
	}
}

// TestPreviewOfAnotherUnit: bytes are not compared with the rates of campaigns, and neither is what each value of a key may have.
func TestPreviewOfAnotherUnit(t *testing.T) {
	state := &view.State{Quotas: []*view.Quota{{ID: "provider", Unit: "units"}}, Campaigns: []*view.Campaign{{ID: "spring", Quotas: []string{"provider"}, Allowed: 9}}}
	for unit, tightest := range map[string]string{"": "1m", "units": "1m", "bytes": ""} {
		now, change := &catalog.QuotaRow{ID: "provider", Unit: "units", Windows: []string{"300/1m"}}, &catalog.QuotaChange{}
		if unit != "" {
			change.Unit = &unit
		}
		if p, err := previewOf(state, now, change); err != nil || p.Tightest != tightest || p.Want != 9 {
			t.Errorf("%s: %+v, %v", unit, p, err)
		}
		now.Per = "recipient"
		if p, err := previewOf(state, now, change); err != nil || p.Tightest != "" {
			t.Errorf("%s by a key: %+v, %v", unit, p, err)
		}
	}
}

// TestEditWithTheOldValues: a change leads to its form with the values from before it, as far as the form writes them as the table does.
func TestEditWithTheOldValues(t *testing.T) {
	rate, per := catalog.Field{Name: "send_rate", Old: "250", New: "2500"}, catalog.Field{Name: "send_per", Old: "00:01:00", New: "00:00:01"}
	wait := catalog.Field{Name: "max_wait", Old: "06:00:00"}
	for _, tt := range []struct {
		change catalog.Change
		want   string
	}{
		{catalog.Change{What: "campaigns update", Campaign: "a:b", Fields: []catalog.Field{rate, {Name: "sink", New: "other"}, {Name: "ramp", Old: "{}"}}, OldRate: "250"}, "edit?id=a%3Ab&rate=250&sink="},
		{catalog.Change{What: "quotas update", Quota: "provider", Fields: []catalog.Field{{Name: "mode", Old: "strict", New: "shadow"}}}, "quota-edit?id=provider&mode=strict"},
		{catalog.Change{What: "campaigns update", Campaign: "a", Fields: []catalog.Field{rate, per}, OldRate: "250/1m"}, "edit?id=a&rate=250%2F1m"},
		{catalog.Change{What: "campaigns update", Campaign: "a", Fields: []catalog.Field{per}, OldRate: "250/1m"}, "edit?id=a&rate=250%2F1m"},
		{catalog.Change{What: "quotas update", Quota: "provider", Fields: []catalog.Field{wait}}, ""}, // the table writes it otherwise
		{catalog.Change{What: "campaigns update", Campaign: "a", Fields: []catalog.Field{{Name: "status", Old: "active", New: "paused"}}}, ""},
		{catalog.Change{What: "campaigns insert", Campaign: "a", Fields: []catalog.Field{rate}}, ""},
		{catalog.Change{What: "quota_windows update", Quota: "provider", Fields: []catalog.Field{{Name: "max_units", Old: "5", New: "6"}}}, ""},
	} {
		if got := before(tt.change); got != tt.want {
			t.Errorf("%+v leads to %q, want %q", tt.change, got, tt.want)
		}
	}
}

// TestTimesWithinTexts: they are shown as other times of a page are, and what is no time, or no text of ours, stays as it is.
func TestTimesWithinTexts(t *testing.T) {
	for text, want := range map[string]string{
		"it begins at 2026-11-20T13:00:00Z <b>": `it begins at <time class="clock" datetime="2026-11-20T13:00:00Z" title="2026-11-20 13:00:00 UTC">20 Nov 13:00 UTC</time> &lt;b&gt;`,
		"2026-11-20T15:00:00.5+02:00":           `<time class="clock" datetime="2026-11-20T13:00:00Z" title="2026-11-20 13:00:00 UTC">20 Nov 13:00 UTC</time>`,
		"2026-99-20T13:00:00Z":                  "2026-99-20T13:00:00Z",
	} {
		if got := string(prose(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	for cause, says := range map[string][2]string{"paused": {"it is paused", ""}, "cancelled": {"it is cancelled, and its jobs settle as cancelled", "its jobs settle as cancelled"}, "rate": {"its rate is 0", "its rate is 0"}} {
		if got := string(why(&view.Held{Cause: cause, Why: says[0]})); got != says[1] {
			t.Errorf("%s: %q", cause, got)
		}
	}
}

// TestScaleOfAPlot: it is not much higher than what is drawn.
func TestScaleOfAPlot(t *testing.T) {
	for most, want := range map[float64]struct {
		top   float64
		lines int
	}{
		265: {300, 3}, 300: {300, 3}, 301: {400, 4}, 4.4: {6, 3}, 104: {150, 3}, 20_000: {20_000, 4}, 20_001: {30_000, 3}, 0: {0.25, 1},
		9e6: {10e6, 4}, 0.3: {0.3, 3},
	} {
		p := newPlot("", []step{{time.Time{}, time.Time{}.Add(time.Hour)}}, most)
		if math.Abs(p.most-want.top) > 1e-9*want.top || len(p.Grid) != want.lines+1 {
			t.Errorf("%g is drawn to %g with %d lines", most, p.most, len(p.Grid))
		}
	}
}
