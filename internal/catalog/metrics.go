package catalog

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// metrics are those of a Postgres catalog. The fields are safe for use by several goroutines at once.
type metrics struct {
	revision  prometheus.Gauge
	campaigns prometheus.Gauge
	invalid   prometheus.Gauge
	listening prometheus.Gauge
	loadedAt  prometheus.Gauge
	seconds   prometheus.Histogram
	loads     map[string]prometheus.Counter
	failures  prometheus.Counter
	endpoints map[delivery.DestinationState]prometheus.Gauge
}

// The kinds of load, as labels.
const (
	loadFull        = "full"
	loadIncremental = "incremental"
)

// newMetrics registers the metrics; a nil registerer keeps them unregistered.
func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	loads := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_catalog_loads_total", Help: "Reads of the catalog that succeeded, by kind.",
	}, []string{"kind"})
	destinations := factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_destinations", Help: "Rows of pacer.destinations, by state.",
	}, []string{"state"})
	endpoints := map[delivery.DestinationState]prometheus.Gauge{}
	for _, state := range delivery.DestinationStates {
		endpoints[state] = destinations.WithLabelValues(state.String())
	}
	return &metrics{
		endpoints: endpoints,
		revision:  gauge("pacer_config_revision", "Revision of the catalog in force in this daemon."),
		campaigns: gauge("pacer_catalog_campaigns", "Campaigns in the catalog."),
		invalid:   gauge("pacer_catalog_invalid_campaigns", "Campaigns that are held because their row cannot be used, or names a sink that is not configured."),
		listening: gauge("pacer_catalog_listening", "1 while notifications of changes arrive, 0 while only polling finds them."),
		loadedAt:  gauge("pacer_catalog_loaded_timestamp_seconds", "When the catalog was last read with success."),
		seconds: factory.NewHistogram(metric.Latency("pacer_catalog_load_seconds", "How long reads of the catalog took.",
			prometheus.ExponentialBuckets(0.0005, 2, 14)...)),
		loads: map[string]prometheus.Counter{
			loadFull:        loads.WithLabelValues(loadFull),
			loadIncremental: loads.WithLabelValues(loadIncremental),
		},
		failures: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_catalog_failures_total", Help: "Reads of the catalog that failed.",
		}),
	}
}
