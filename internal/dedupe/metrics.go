package dedupe

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/metric"
)

// The answers to a lease, as label values of pacer_dedupe_claims_total.
const (
	answerLeased    = "claimed"
	answerDelivered = "delivered" // the job is not sent
	answerCancelled = "cancelled" // nor is this one
	answerHeld      = "held"      // another daemon may be sending it
	answerLate      = "late"      // no answer before the job's slot had passed
	answerFailed    = "failed"
)

type metrics struct {
	leases   *prometheus.CounterVec
	unmarked prometheus.Counter
	seconds  prometheus.Histogram
	entries  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	factory := promauto.With(r)
	m := &metrics{
		leases: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_dedupe_claims_total", Help: "Leases requested for jobs about to be sent, by the answer of the dedupe ledger.",
		}, []string{"answer"}),
		unmarked: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_dedupe_unmarked_total", Help: "Jobs delivered whose marks were given up; a record with their id is sent again.",
		}),
		seconds: factory.NewHistogram(metric.Latency("pacer_dedupe_seconds", "Round trips to the dedupe ledger.",
			.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .5)),
		entries: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "pacer_dedupe_batch_entries", Help: "Leases, marks and releases in one round trip to the dedupe ledger.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
	}
	for _, answer := range []string{answerLeased, answerDelivered, answerCancelled, answerHeld, answerLate, answerFailed} {
		m.leases.WithLabelValues(answer)
	}
	return m
}
