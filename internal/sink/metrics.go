package sink

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// metrics are the router's metrics. Their labels are the configured sinks and the classes of results.
type metrics struct {
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

// routeMetrics are one sink's, looked up once so that a delivery costs no map access by label.
type routeMetrics struct {
	seconds  []prometheus.Observer // by delivery.ResultClass
	inFlight prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pacer_sink_seconds",
			Help:    "Time a sink took to answer for one job, by the class of the answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"sink", "class"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_jobs_in_flight",
			Help: "Jobs handed to a sink of this daemon that has not answered yet.",
		}, []string{"sink"}),
	}
	for _, c := range []prometheus.Collector{m.seconds, m.inFlight} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) route(name string) routeMetrics {
	r := routeMetrics{inFlight: m.inFlight.WithLabelValues(name)}
	for _, class := range delivery.ResultClasses {
		r.seconds = append(r.seconds, m.seconds.WithLabelValues(name, class.String()))
	}
	return r
}
