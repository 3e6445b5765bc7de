package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/broker"
)

// showBuild exports the version.
func showBuild(r prometheus.Registerer) {
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "pacer_build_info", Help: "1; the version is in the label.", ConstLabels: prometheus.Labels{"version": Version},
	}).Set(1)
}

// showThrottle exports how long the brokers have throttled the daemon.
func showThrottle(r prometheus.Registerer, kafka *broker.Client) {
	for _, kind := range broker.Kinds {
		promauto.With(r).NewCounterFunc(prometheus.CounterOpts{
			Name: "pacer_kafka_throttle_seconds", ConstLabels: prometheus.Labels{"request": kind},
			Help: "Time for which brokers told this daemon to send no requests of a kind, since a client quota was exceeded.",
		}, func() float64 { return kafka.Throttled(kind).Seconds() })
	}
}
