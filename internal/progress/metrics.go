package progress

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
)

// metrics are those of the whole cluster. The daemon that leads shows them; the rates, which the catalog has, every daemon.
type metrics struct {
	rate, eta, lateOf, overdue series
	backlog                    [len(states)]series
	late                       *prometheus.GaugeVec
	lost                       prometheus.Counter
}

// states are those of the jobs of a backlog, in the order of backlogOf.
var states = [...]string{"waiting", "retrying", "in_flight"}

func backlogOf(b delivery.Backlog) [len(states)]int64 {
	return [...]int64{b.Waiting, b.Retrying, b.InFlight}
}

// series are those of a gauge, by campaign.
type series struct {
	*prometheus.GaugeVec
	shown map[string]float64
}

// set shows these values and no others; an unchanged one costs one comparison.
func (s *series) set(values map[string]float64) {
	for id, value := range values {
		if before, shown := s.shown[id]; !shown || before != value {
			s.shown[id] = value
			s.WithLabelValues(id).Set(value)
		}
	}
	for id := range s.shown {
		if _, ok := values[id]; !ok {
			delete(s.shown, id)
			s.DeleteLabelValues(id)
		}
	}
}

// figure is what the metrics show of a campaign.
type figure struct {
	backlog delivery.Backlog
	eta     float64
	known   bool  // whether eta is known
	late    int64 // jobs
}

func newMetrics(r prometheus.Registerer) *metrics {
	factory := promauto.With(r)
	byCampaign := func(name, help string) series {
		return series{factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"campaign"}), map[string]float64{}}
	}
	m := &metrics{
		rate: byCampaign("pacer_campaign_send_rate", "Units per second that the campaign may send now by its row and its schedule; 0 while it is paused, over, or outside its hours."),
		eta: byCampaign("pacer_campaign_eta_seconds",
			"Seconds until the campaign will have sent its backlog and the jobs still expected, by its schedule and its quotas; absent while it is not known."),
		late: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_actionable_lag",
			Help: "Jobs that should have been sent within about the last minute and were not, over all daemons: waiting jobs of " +
				"campaigns that may send, and send more than 5% less than their rate. A campaign that keeps its rate, is paused, " +
				"out of hours or held by a quota has none, however many wait. The cause is destination while a closed gate, or a " +
				"destination that fails the campaign, kept them from being sent, else capacity.",
		}, []string{"cause"}),
		lateOf: byCampaign("pacer_campaign_late", "The campaign's part of pacer_actionable_lag, in jobs; absent while it has none."),
		overdue: byCampaign("pacer_campaign_overdue_seconds",
			"How long after its finish_by the campaign will have sent what is left, as fast as its limits allow; absent while it is in time."),
		lost: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_progress_failures_total", Help: "Times that progress could not be exchanged with the other daemons.",
		}),
	}
	backlog := factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_campaign_backlog",
		Help: "Jobs of the campaign that are not settled, in ingress, lanes, timers and memory, over all daemons.",
	}, []string{"campaign", "state"})
	for i, state := range states {
		m.backlog[i] = series{backlog.MustCurryWith(prometheus.Labels{"state": state}), map[string]float64{}}
	}
	return m
}

// showRates sets the gauges of the rates of these campaigns, as they are now, and removes those of others.
func (m *metrics) showRates(campaigns map[string]*delivery.Campaign, now time.Time) {
	rates := make(map[string]float64, len(campaigns))
	for id, c := range campaigns {
		rates[id] = rateNow(c, now)
	}
	m.rate.set(rates)
}

// show sets the gauges to these figures.
func (m *metrics) show(figures map[string]figure, late Lateness) {
	m.late.WithLabelValues("capacity").Set(float64(late.Capacity()))
	m.late.WithLabelValues("destination").Set(float64(late.Destination))
	etas, lateOf := make(map[string]float64, len(figures)), map[string]float64{}
	for id, f := range figures {
		if f.known {
			etas[id] = f.eta
		}
		if f.late > 0 {
			lateOf[id] = float64(f.late)
		}
	}
	m.eta.set(etas)
	m.lateOf.set(lateOf)
	for i := range m.backlog {
		jobs := make(map[string]float64, len(figures))
		for id, f := range figures {
			jobs[id] = float64(backlogOf(f.backlog)[i])
		}
		m.backlog[i].set(jobs)
	}
}

// hide removes the metrics of all campaigns.
func (m *metrics) hide() {
	m.lateOf.set(nil)
	m.overdue.set(nil)
	for i := range m.backlog {
		m.backlog[i].set(nil)
	}
	m.eta.set(nil)
	m.late.Reset()
}
