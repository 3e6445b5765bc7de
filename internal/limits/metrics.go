package limits

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
	"github.com/pacer/pacer/internal/notation"
)

type metrics struct {
	takeSeconds, takeItems prometheus.Histogram
	denied, shadowDenied   *prometheus.CounterVec
	clockOffset            *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	factory := promauto.With(r)
	return &metrics{
		takeSeconds: factory.NewHistogram(metric.Latency("pacer_take_seconds", "Time of one take, all round trips and repetitions included.",
			.0005, .001, .002, .004, .008, .015, .025, .05, .1, .25, .5, 1)),
		takeItems: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "pacer_take_items", Help: "Campaigns asked for in one take.",
			Buckets: []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000},
		}),
		denied: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_quota_denied_total", Help: "Asks that a quota window reduced or denied.",
		}, []string{"quota", "window"}),
		shadowDenied: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_quota_shadow_denied_total", Help: "Units granted that a quota in shadow mode would have denied.",
		}, []string{"quota"}),
		clockOffset: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_store_clock_offset_seconds", Help: "By how much the clock of a shard's Redis is ahead of this machine's.",
		}, []string{"shard"}),
	}
}

// count counts an answer that a window cut short, under the window's name, and the units that quotas in shadow mode
// would have denied.
func (m *metrics) count(c *delivery.Campaign, g *delivery.Granted) {
	for _, q := range g.Shadowed {
		m.shadowDenied.WithLabelValues(q.Quota).Add(float64(q.Units))
	}
	if g.Bound != delivery.BindQuota {
		return
	}
	for _, q := range c.Quotas {
		if q.ID == g.BoundQuota && g.BoundWindow < len(q.Windows) {
			m.denied.WithLabelValues(q.ID, notation.FormatSpan(q.Windows[g.BoundWindow].Span)).Inc()
		}
	}
}
