package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of native histograms, whose cells grow by a tenth. A series that needs more cells is reset at this age, and gets coarser cells
// before.
const (
	nativeFactor = 1.1
	nativeCells  = 100
	nativeAge    = time.Hour
)

// Latency returns the options of a histogram of latencies, in seconds: with the buckets given, and beside them with a native histogram for
// a Prometheus that asks for one. BenchmarkObserve has what that costs.
func Latency(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeCells, NativeHistogramMinResetDuration: nativeAge,
	}
}

// Observe counts a latency, with the trace that it is of as an exemplar; "" for none.
func Observe(h prometheus.Histogram, took time.Duration, traceID string) {
	if traceID == "" {
		h.Observe(took.Seconds())
		return
	}
	h.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
}
