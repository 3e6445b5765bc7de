package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// campaignGauges shows the catalog as metrics, which are equal on every daemon.
type campaignGauges struct {
	snapshot func() *delivery.Snapshot
	rate     *prometheus.GaugeVec
	seen     map[string]bool
	ramps    []*delivery.Campaign // of the current snapshot
}

func newCampaignGauges(snapshot func() *delivery.Snapshot, r prometheus.Registerer) *campaignGauges {
	factory := promauto.With(r)
	g := &campaignGauges{
		snapshot: snapshot,
		rate: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_send_rate", Help: "Units per second that the campaign may send.",
		}, []string{"campaign"}),
		seen: map[string]bool{},
	}
	info := factory.NewGauge(prometheus.GaugeOpts{
		Name: "pacer_build_info", Help: "1; the version is in the label.", ConstLabels: prometheus.Labels{"version": Version},
	})
	info.Set(1)
	return g
}

// Run sets the gauges every second until ctx ends.
func (g *campaignGauges) Run(ctx context.Context) error {
	var shown *delivery.Snapshot
	update := func(time.Time) {
		if s := g.snapshot(); s != nil && s != shown {
			g.show(s)
			shown = s
		}
		g.step(time.Now())
	}
	update(time.Now())
	retry.Every(ctx, time.Second, update)
	return nil
}

func (g *campaignGauges) show(s *delivery.Snapshot) {
	g.ramps = nil
	for id, c := range s.Campaigns {
		g.rate.WithLabelValues(id).Set(c.Rate.PerSecond())
		g.seen[id] = true
		if c.Ramp != nil {
			g.ramps = append(g.ramps, c)
		}
	}
	for id := range g.seen {
		if s.Campaigns[id] == nil {
			g.rate.DeleteLabelValues(id)
			delete(g.seen, id)
		}
	}
}

// step sets the rates that ramps have reached by now.
func (g *campaignGauges) step(now time.Time) {
	for _, c := range g.ramps {
		rate, _, _ := c.RateAt(now)
		g.rate.WithLabelValues(c.ID).Set(rate.PerSecond())
	}
}
