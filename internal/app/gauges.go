package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// showBuild exports the version.
func showBuild(r prometheus.Registerer) {
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "pacer_build_info", Help: "1; the version is in the label.", ConstLabels: prometheus.Labels{"version": Version},
	}).Set(1)
}
