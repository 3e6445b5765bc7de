package progress

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of the whole cluster, equal on every daemon.
type metrics struct {
	backlog *prometheus.GaugeVec
	eta     *prometheus.GaugeVec
	late    *prometheus.GaugeVec
	lost    prometheus.Counter

	shown map[string]figure
}

// figure is what the metrics show of a campaign.
type figure struct {
	backlog int64
	eta     float64
	known   bool // whether eta is known
}

func newMetrics(r prometheus.Registerer) *metrics {
	factory := promauto.With(r)
	return &metrics{
		backlog: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_backlog",
			Help: "Jobs of the campaign that wait in lanes or in the memory of a daemon, over all daemons.",
		}, []string{"campaign"}),
		eta: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_eta_seconds",
			Help: "Seconds until the campaign will have sent its backlog and the jobs still expected, by its schedule and " +
				"its quotas; absent while it is not known.",
		}, []string{"campaign"}),
		late: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_actionable_lag",
			Help: "Jobs that should have been sent within about the last minute and were not, over all daemons: waiting jobs of " +
				"campaigns that may send, and send more than 5% less than their rate. A campaign that keeps its rate, is paused, " +
				"out of hours or held by a quota has none, however many wait. The cause is destination while a closed gate, or a " +
				"destination that fails the campaign, kept them from being sent, else capacity.",
		}, []string{"cause"}),
		lost: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_progress_failures_total", Help: "Times that progress could not be exchanged with the other daemons.",
		}),
		shown: map[string]figure{},
	}
}

// show sets the gauges to these figures; unchanged figures cost one comparison.
func (m *metrics) show(figures map[string]figure, late lateness) {
	m.late.WithLabelValues("capacity").Set(float64(late.capacity()))
	m.late.WithLabelValues("destination").Set(float64(late.barred))
	for id, f := range figures {
		before, shown := m.shown[id]
		if shown && before == f {
			continue
		}
		m.shown[id] = f
		m.backlog.WithLabelValues(id).Set(float64(f.backlog))
		if f.known {
			m.eta.WithLabelValues(id).Set(f.eta)
		} else {
			m.eta.DeleteLabelValues(id)
		}
	}
	for id := range m.shown {
		if _, ok := figures[id]; !ok {
			m.backlog.DeleteLabelValues(id)
			m.eta.DeleteLabelValues(id)
			delete(m.shown, id)
		}
	}
}

// hide removes the metrics of all campaigns.
func (m *metrics) hide() {
	m.backlog.Reset()
	m.eta.Reset()
	m.late.Reset()
	clear(m.shown)
}
