package app

import (
	"testing"

	"github.com/pacer/pacer/internal/catalog"
)

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
		if got := formatETA(g); got != tc.words {
			t.Errorf("%s, want %s", got, tc.words)
		}
		if got := formatPercent(g); got != tc.done {
			t.Errorf("%s, want %s", got, tc.done)
		}
	}
}
