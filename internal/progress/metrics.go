package progress

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
)

// metrics are those of the whole cluster, equal on every daemon.
type metrics struct {
	rate    *prometheus.GaugeVec
	backlog *prometheus.GaugeVec
	eta     *prometheus.GaugeVec
	late    *prometheus.GaugeVec
	lateOf  *prometheus.GaugeVec
	lost    prometheus.Counter

	shown map[string]figure
	lates map[string]bool    // campaigns that are shown to be late
	rates map[string]float64 // as shown
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
		rate: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_send_rate", Help: "Units per second that the campaign may send now by its row and its schedule; 0 while it is paused, over, or outside its hours.",
		}, []string{"campaign"}),
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
		lateOf: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_campaign_late", Help: "The campaign's part of pacer_actionable_lag, in jobs; absent while it has none.",
		}, []string{"campaign"}),
		lost: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_progress_failures_total", Help: "Times that progress could not be exchanged with the other daemons.",
		}),
		shown: map[string]figure{}, rates: map[string]float64{}, lates: map[string]bool{},
	}
}

// showRates sets the gauges of the rates of these campaigns, as they are now, and removes those of others.
func (m *metrics) showRates(campaigns map[string]*delivery.Campaign, now time.Time) {
	for id, c := range campaigns {
		rate := rateNow(c, now)
		if before, shown := m.rates[id]; !shown || before != rate {
			m.rates[id] = rate
			m.rate.WithLabelValues(id).Set(rate)
		}
	}
	for id := range m.rates {
		if campaigns[id] == nil {
			delete(m.rates, id)
			m.rate.DeleteLabelValues(id)
		}
	}
}

// show sets the gauges to these figures; unchanged figures cost one comparison.
func (m *metrics) show(figures map[string]figure, late lateness) {
	m.late.WithLabelValues("capacity").Set(float64(late.capacity()))
	m.late.WithLabelValues("destination").Set(float64(late.Destination))
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

// showLate sets the gauges of late jobs, and removes those of campaigns that have none.
func (m *metrics) showLate(late map[string]int64, shown map[string]*delivery.Campaign) {
	byLabel := map[string]int64{}
	for id, jobs := range late {
		if shown[id] == nil {
			id = Others
		}
		byLabel[id] += jobs
	}
	for id, jobs := range byLabel {
		m.lates[id] = true
		m.lateOf.WithLabelValues(id).Set(float64(jobs))
	}
	for id := range m.lates {
		if byLabel[id] == 0 {
			delete(m.lates, id)
			m.lateOf.DeleteLabelValues(id)
		}
	}
}

// hide removes the metrics of all campaigns.
func (m *metrics) hide() {
	m.lateOf.Reset()
	clear(m.lates)
	m.backlog.Reset()
	m.eta.Reset()
	m.late.Reset()
	clear(m.shown)
}
