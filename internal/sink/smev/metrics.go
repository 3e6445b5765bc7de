package smev

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// metrics are the counters of the collector. Their labels are the kinds of responses, and the steps.
type metrics struct {
	collected *prometheus.CounterVec
	again     prometheus.Counter
	failed    *prometheus.CounterVec
}

// The steps of collecting a response.
const (
	stepGet   = "get"
	stepStore = "store"
	stepAck   = "ack"
)

func newMetrics() *metrics {
	m := &metrics{
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_smev_responses_total", Help: "Responses of SMEV that were written to the topic and acknowledged, by what they say of the request.",
		}, []string{"kind"}),
		again: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_smev_responses_again_total", Help: "Responses of SMEV that came once more and were not written again.",
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_smev_collect_failures_total", Help: "Failures to collect a response of SMEV, by the step; each is tried again.",
		}, []string{"step"}),
	}
	for _, kind := range soap.Kinds {
		m.collected.WithLabelValues(string(kind))
	}
	for _, step := range []string{stepGet, stepStore, stepAck} {
		m.failed.WithLabelValues(step)
	}
	return m
}

func (m *metrics) register(reg prometheus.Registerer) {
	reg.MustRegister(m.collected, m.again, m.failed)
}
