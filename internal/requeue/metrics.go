package requeue

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// kinds are the label values of pacer_requeue_records_total.
var kinds = map[delivery.DestinationKind]string{
	delivery.ToLane: "lane", delivery.ToTimer: "timer", delivery.ToDead: "dead",
}

type metrics struct {
	hops      prometheus.Histogram
	produce   prometheus.Histogram
	records   map[delivery.DestinationKind]prometheus.Counter
	outage    prometheus.Gauge
	fallbacks prometheus.Counter
}

// newMetrics registers the relay's metrics; a nil registerer leaves them unregistered. queued is read at each
// scrape.
func newMetrics(reg prometheus.Registerer, queued func() float64) (*metrics, error) {
	records := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_requeue_records_total",
		Help: "Records written and acknowledged, by kind of topic.",
	}, []string{"kind"})
	m := &metrics{
		hops: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "pacer_requeue_hops",
			Help:    "Lane writes a job has behind it, observed at each of them. Above 1 is a defect.",
			Buckets: []float64{1, 2, 3, 5, 10},
		}),
		produce: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "pacer_requeue_produce_seconds",
			Help:    "Duration of a round of produce requests for one batch.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		records: make(map[delivery.DestinationKind]prometheus.Counter, len(kinds)),
		outage: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_requeue_outage",
			Help: "1 while re-enqueued jobs cannot be written or committed, else 0.",
		}),
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_requeue_pin_fallbacks_total",
			Help: "Lane lookups answered from memory or by hash because the catalog did not answer.",
		}),
	}
	for kind, label := range kinds {
		m.records[kind] = records.WithLabelValues(label)
	}
	if reg == nil {
		return m, nil
	}
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_requeue_queued",
		Help: "Jobs waiting to be written to a lane, a timer or the dead letters.",
	}, queued)
	var err error
	for _, c := range []prometheus.Collector{m.hops, m.produce, records, m.outage, m.fallbacks, gauge} {
		err = errors.Join(err, reg.Register(c))
	}
	return m, err
}
