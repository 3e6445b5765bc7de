package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Value returns the value of a counter or a gauge, and Observed how much a histogram has counted.
func Value(of prometheus.Metric) float64 {
	m := written(of)
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

// Observed returns how often a histogram has observed something.
func Observed(of prometheus.Metric) uint64 { return written(of).GetHistogram().GetSampleCount() }

func written(of prometheus.Metric) *dto.Metric {
	m := &dto.Metric{}
	_ = of.Write(m) // those of the library never fail
	return m
}
