package requeue

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// kinds are the label values of pacer_requeue_records_total.
var kinds = map[delivery.RerouteKind]string{
	delivery.ToLane: "lane", delivery.ToTimer: "timer", delivery.ToDead: "dead",
}

type metrics struct {
	hops    prometheus.Histogram
	produce prometheus.Histogram
	records map[delivery.RerouteKind]prometheus.Counter
	dead    *prometheus.CounterVec // reason
	results prometheus.Counter
	short   prometheus.Counter
}

// newMetrics registers the metrics of a relay, and reads some at each scrape; a nil registerer leaves them unregistered.
func newMetrics(reg prometheus.Registerer, r *Relay) *metrics {
	factory := promauto.With(reg)
	records := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_requeue_records_total",
		Help: "Records written and acknowledged, by kind of topic.",
	}, []string{"kind"})
	m := &metrics{
		hops: factory.NewHistogram(prometheus.HistogramOpts{
			Name:    "pacer_requeue_hops",
			Help:    "Lane writes a job has behind it, observed at each of them. Above 1 is a defect.",
			Buckets: []float64{1, 2, 3, 5, 10},
		}),
		produce: factory.NewHistogram(metric.Latency("pacer_requeue_produce_seconds", "Duration of a round of produce requests for one batch.",
			prometheus.ExponentialBuckets(0.0005, 2, 15)...)),
		records: make(map[delivery.RerouteKind]prometheus.Counter, len(kinds)),
		dead: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_dead_letters_total",
			Help: "Dead letters written and acknowledged, by reason.",
		}, []string{"reason"}),
	}
	for kind, label := range kinds {
		m.records[kind] = records.WithLabelValues(label)
	}
	for _, reason := range delivery.DeadReasons {
		m.dead.WithLabelValues(string(reason))
	}
	gauge := func(name, help string, value func(o *outbox) int) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(value(r.box))
		})
	}
	gauge("pacer_requeue_queued", "Jobs waiting to be written to a lane, a timer or the dead letters.", (*outbox).jobs)
	gauge("pacer_requeue_outage", "1 while re-enqueued jobs cannot be written, else 0.", func(o *outbox) int {
		s := o.stalled()
		return min(1, s.partitions-s.results)
	})
	gauge("pacer_requeue_refusing_partitions",
		"Partitions of lanes, timers, dead letters and results that refuse records or do not answer.",
		func(o *outbox) int { return o.stalled().partitions })
	gauge("pacer_requeue_held", "Jobs waiting for partitions that refuse records or do not answer.", func(o *outbox) int { return o.stalled().jobs })
	gauge("pacer_requeue_oversize", "Jobs that stay open because their records are larger than the topic takes.",
		func(o *outbox) int { return o.stalled().large })
	if !r.opts.Topics.Results {
		factory = promauto.With(nil)
	}
	m.results = factory.NewCounter(prometheus.CounterOpts{
		Name: "pacer_results_written_total", Help: "Events of settled jobs written and acknowledged.",
	})
	m.short = factory.NewCounter(prometheus.CounterOpts{
		Name: "pacer_results_shortened_total", Help: "Events that are larger than their topic takes: written without keys, headers and answer.",
	})
	gauge("pacer_results_waiting", "Jobs that are not settled because their event is not acknowledged yet.", func(o *outbox) int { return o.results })
	gauge("pacer_results_outage", "1 while events of settled jobs cannot be written, else 0.", func(o *outbox) int {
		return min(1, o.stalled().results)
	})
	return m
}
