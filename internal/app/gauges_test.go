package app

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
)

// TestRampsShowInTheGauge: the rate exported is the one in force.
func TestRampsShowInTheGauge(t *testing.T) {
	m := catalog.NewMemory()
	ramp := &delivery.Ramp{Start: 2_000_000, Add: 1_000_000, Per: time.Second, Every: time.Minute, Since: time.Now().Add(-90 * time.Second)}
	m.PutCampaign(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(100), Ramp: ramp})
	g := newCampaignGauges(m.Snapshot, prometheus.NewRegistry())
	g.show(m.Snapshot())
	for after, want := range map[time.Duration]float64{90 * time.Second: 3, 200 * time.Second: 5, 24 * time.Hour: 100} {
		g.step(ramp.Since.Add(after))
		if got := testutil.ToFloat64(g.rate.WithLabelValues("c")); got != want {
			t.Errorf("%v/s after %s, want %v", got, after, want)
		}
	}
}
