package dedupe

import "github.com/prometheus/client_golang/prometheus"

// The answers to a claim, as they are spelled in pacer_dedupe_claims_total.
const (
	answerClaimed   = "claimed"
	answerDelivered = "delivered" // and so the job is not sent
	answerHeld      = "held"      // somebody else may be sending it
	answerLate      = "late"      // there was none until the job's slot had passed
	answerFailed    = "failed"
)

type metrics struct {
	suppressed *prometheus.CounterVec
	claims     *prometheus.CounterVec
	unmarked   prometheus.Counter
	seconds    prometheus.Histogram
	entries    prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		suppressed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_duplicates_suppressed_total", Help: "Jobs not sent because one with their id had been delivered.",
		}, []string{"campaign"}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_dedupe_claims_total", Help: "Claims on jobs about to be sent, by what the dedupe ledger answered.",
		}, []string{"answer"}),
		unmarked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_dedupe_unmarked_total", Help: "Jobs delivered whose marks were given up; a record with their id is sent again.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pacer_dedupe_seconds", Help: "Round trips to the dedupe ledger.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .5},
		}),
		entries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pacer_dedupe_batch_entries", Help: "Claims, marks and releases in one round trip to the dedupe ledger.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
	}
	for _, c := range []prometheus.Collector{m.suppressed, m.claims, m.unmarked, m.seconds, m.entries} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for _, answer := range []string{answerClaimed, answerDelivered, answerHeld, answerLate, answerFailed} {
		m.claims.WithLabelValues(answer)
	}
	return m, nil
}
