package pacer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/metric"
)

type metrics struct {
	lateness  prometheus.Histogram
	late      metric.Histogram // the same, finer
	forfeited prometheus.Counter
	quantum   prometheus.Gauge
	queued    prometheus.Gauge
	queues    prometheus.Gauge

	closedDestinations *prometheus.GaugeVec // by sink
}

func newMetrics(r prometheus.Registerer) *metrics {
	factory := promauto.With(r)
	return &metrics{
		lateness: factory.NewHistogram(metric.Latency("pacer_slot_lateness_seconds", "How long after its slot a job was passed to its sink.",
			.0001, .00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .05, .1, 1)),
		forfeited: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_slots_forfeited_total", Help: "Slots given up because they could not be used in time.",
		}),
		quantum: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_quantum_seconds", Help: "Stretch of a campaign's timeline that is asked for at once.",
		}),
		queued: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_jobs_queued", Help: "Jobs held in memory, waiting for their slots.",
		}),
		queues: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_queues", Help: "Campaigns with a queue in this daemon.",
		}),
		closedDestinations: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_destinations_closed", Help: "Destinations of a sink whose own gates are closed or half-open, as far as this daemon knows.",
		}, []string{"sink"}),
	}
}

// Readings are figures of this daemon as a whole: of slots, those since the start.
type Readings struct {
	Quantum   time.Duration
	Forfeited uint64
	Lateness  metric.Counts // of jobs that were passed to their sinks
}

// Readings returns the figures of this daemon. It may be called concurrently.
func (m *metrics) Readings() Readings {
	return Readings{
		Quantum:   time.Duration(metric.Value(m.quantum) * float64(time.Second)),
		Forfeited: uint64(metric.Value(m.forfeited)), Lateness: m.late.Counts(),
	}
}
