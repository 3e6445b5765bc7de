package pacer

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

type metrics struct {
	settled   *prometheus.CounterVec
	lateness  prometheus.Histogram
	forfeited prometheus.Counter
	quantum   prometheus.Gauge
	queued    prometheus.Gauge
	queues    prometheus.Gauge
	tallies   tallies
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_jobs_settled_total", Help: "Jobs whose fate became durable, by campaign and outcome.",
		}, []string{"campaign", "outcome"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pacer_slot_lateness_seconds", Help: "How long after its slot a job was handed to its sink.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .05, .1, 1},
		}),
		forfeited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_slots_forfeited_total", Help: "Slots given up because they could not be used in time.",
		}),
		quantum: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_quantum_seconds", Help: "Stretch of a campaign's timeline that is asked for at once.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_jobs_queued", Help: "Jobs held in memory, waiting for their slots.",
		}),
		queues: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_queues", Help: "Campaigns with a queue in this daemon.",
		}),
	}
	for _, c := range []prometheus.Collector{m.settled, m.lateness, m.forfeited, m.quantum, m.queued, m.queues} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for _, o := range delivery.Outcomes {
		m.settled.WithLabelValues(unknownCampaign, o.String())
	}
	return m, nil
}

// unknownCampaign is the label of jobs whose campaign is not in the catalog.
const unknownCampaign = "(unknown)"

// observer counts the settled jobs of a campaign in the catalog, or of all unknown ones, which share one label, so that
// labels stay a closed set. The counter that every job needs is looked up once, and so is the campaign's tally.
func (m *metrics) observer(campaign string) func(*delivery.Job, delivery.Outcome) {
	delivered := sync.OnceValue(func() prometheus.Counter {
		return m.settled.WithLabelValues(campaign, delivery.OutcomeDelivered.String())
	})
	tally := &tally{} // of unknown campaigns: nobody asks for it
	if campaign != unknownCampaign {
		tally = m.tallies.of(campaign)
	}
	return func(j *delivery.Job, o delivery.Outcome) {
		tally.count(j, o)
		if o == delivery.OutcomeDelivered {
			delivered().Inc()
		} else {
			m.settled.WithLabelValues(campaign, o.String()).Inc()
		}
	}
}

// forget drops the counts of a campaign that is not in the catalog any more.
func (m *metrics) forget(campaign string) {
	for _, o := range delivery.Outcomes {
		m.settled.DeleteLabelValues(campaign, o.String())
	}
	m.tallies.forget(campaign)
}
