package progress

import (
	"math"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func campaign(id string, rate, weight int64, quotas ...*delivery.Quota) *delivery.Campaign {
	return &delivery.Campaign{
		ID: id, Status: delivery.StatusActive, Rate: delivery.PerSecond(rate), PriorityWeight: weight, Quotas: quotas,
	}
}

// TestForecast: by the rate, by what is left of a quota and then by what comes in, and by what others leave of it.
func TestForecast(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	minute := &delivery.Quota{ID: "minute", Windows: []delivery.Window{{Span: time.Minute, Limit: 600}, {Span: time.Hour, Limit: 1e6}}}
	even := &delivery.Quota{ID: "even", Spend: delivery.SpendEven, Windows: minute.Windows}
	shadow := &delivery.Quota{ID: "shadow", Mode: delivery.ModeShadow, Windows: minute.Windows}
	exempt := &delivery.Quota{ID: "exempt", Exempt: 100, Windows: minute.Windows}
	none := &delivery.Quota{ID: "none", Windows: []delivery.Window{{Span: time.Minute, Limit: 0}}}
	left := []delivery.WindowState{{Quota: "minute", Window: 0, Remaining: 300}, {Quota: "minute", Window: 1, Remaining: 1e6}}
	paused := campaign("paused", 100, 9, minute)
	paused.Status = delivery.StatusPaused
	for name, tc := range map[string]struct {
		campaign *delivery.Campaign
		others   []*delivery.Campaign
		windows  []delivery.WindowState
		want     float64 // seconds for 6000 units, -1 for never
	}{
		"no quota":            {campaign("c", 100, 1), nil, nil, 60},
		"nothing is left":     {campaign("c", 100, 1, minute), nil, nil, 600},
		"300 are left":        {campaign("c", 100, 1, minute), nil, left, 604.0347}, // each 60.4 s, which are sixty buckets, 300 at once, and 300 as they leave
		"even":                {campaign("c", 100, 1, even), nil, nil, 600},
		"shadow":              {campaign("c", 100, 1, shadow), nil, nil, 60},
		"exempt":              {campaign("c", 100, 1, exempt), nil, nil, 60},
		"a limit of 0":        {campaign("c", 100, 1, none), nil, nil, -1},
		"does not bind":       {campaign("c", 5, 1, minute), nil, left, 1200},
		"shared":              {campaign("c", 100, 1, minute), []*delivery.Campaign{campaign("d", 100, 1, minute)}, nil, 1200},
		"by weight":           {campaign("c", 100, 3, minute), []*delivery.Campaign{campaign("d", 100, 1, minute)}, nil, 800},
		"with a modest one":   {campaign("c", 100, 1, minute), []*delivery.Campaign{campaign("d", 2, 1, minute)}, nil, 750},
		"with one that waits": {campaign("c", 100, 1, minute), []*delivery.Campaign{paused}, nil, 600},
		"paused itself":       {paused, nil, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForecast(now, append(tc.others, tc.campaign), tc.windows)
			got := -1.0
			if at, ok := f.done(tc.campaign, 6000, 1); ok {
				got = at.Sub(now).Seconds()
			}
			if math.Abs(got-tc.want) > 0.01 {
				t.Errorf("in %f s, want %f", got, tc.want)
			}
		})
	}
	if f := newForecast(now, []*delivery.Campaign{paused}, left); f.rates[paused] != 0 {
		t.Error("a paused campaign has a rate")
	}
	c := campaign("c", 400, 1, minute)
	if !newForecast(now, []*delivery.Campaign{c}, left).waits(c) || !newForecast(now, []*delivery.Campaign{c}, nil).waits(c) {
		t.Error("a quota with less than a second's worth, or one that was not seen, does not hold the campaign")
	}
	c = campaign("c", 300, 1, minute)
	if newForecast(now, []*delivery.Campaign{c}, left).waits(c) {
		t.Error("a quota with a second's worth holds the campaign")
	}
}
