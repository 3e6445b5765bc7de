package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// campaignGauges shows the catalog as metrics. They are equal on every daemon.
type campaignGauges struct {
	snapshot func() *delivery.Snapshot
	rate     *prometheus.GaugeVec
	seen     map[string]bool
	ramps    []*delivery.Campaign // of the snapshot shown
}

func newCampaignGauges(snapshot func() *delivery.Snapshot, r prometheus.Registerer) (*campaignGauges, error) {
	g := &campaignGauges{
		snapshot: snapshot,
		rate: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_send_rate", Help: "Units per second that the campaign may send.",
		}, []string{"campaign"}),
		seen: map[string]bool{},
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "pacer_build_info", Help: "1; the version is in the label.", ConstLabels: prometheus.Labels{"version": Version},
	})
	info.Set(1)
	for _, c := range []prometheus.Collector{g.rate, info} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Run sets the gauges every second until ctx ends.
func (g *campaignGauges) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var shown *delivery.Snapshot
	for {
		if s := g.snapshot(); s != nil && s != shown {
			g.show(s)
			shown = s
		}
		g.step(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
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

// step shows the rates that ramps have reached by now.
func (g *campaignGauges) step(now time.Time) {
	for _, c := range g.ramps {
		rate, _, _ := c.RateAt(now)
		g.rate.WithLabelValues(c.ID).Set(rate.PerSecond())
	}
}
