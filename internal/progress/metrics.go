package progress

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// unknownCampaign is the label of jobs whose campaign is not in the catalog.
const unknownCampaign = "(unknown)"

// metrics are the cluster's, equal on every daemon.
type metrics struct {
	backlog *prometheus.GaugeVec
	eta     *prometheus.GaugeVec
	late    *prometheus.GaugeVec
	lost    prometheus.Counter

	shown map[string]figure
}

// figure is what is shown of a campaign.
type figure struct {
	backlog int64
	eta     float64
	known   bool // eta is
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_backlog",
			Help: "Jobs of the campaign that wait in lanes or in the memory of a daemon, over all daemons.",
		}, []string{"campaign"}),
		eta: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_eta_seconds",
			Help: "Seconds until the campaign will have sent its backlog, and what is still expected of it, by its schedule and " +
				"its quotas; absent while nobody can tell.",
		}, []string{"campaign"}),
		late: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_actionable_lag",
			Help: "Jobs that should have been sent within about the last minute and were not, over all daemons: waiting jobs of " +
				"campaigns that may send, and send more than 5% less than their rate. A campaign that keeps its rate, is paused, " +
				"out of hours or held by a quota has none, however many wait.",
		}, nil),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_progress_failures_total", Help: "Times that progress could not be exchanged with the other daemons.",
		}),
		shown: map[string]figure{},
	}
	for _, c := range []prometheus.Collector{m.backlog, m.eta, m.late, m.lost} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of progress: %w", err)
		}
	}
	return m, nil
}

// show brings the gauges to these figures; those that have not changed cost a comparison.
func (m *metrics) show(figures map[string]figure, late int64) {
	m.late.WithLabelValues().Set(float64(late))
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

// hide takes everything away that is not known any more.
func (m *metrics) hide() {
	m.backlog.Reset()
	m.eta.Reset()
	m.late.Reset()
	clear(m.shown)
}
