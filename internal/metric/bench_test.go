package metric

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkObserve is what counting one latency costs, with classic buckets alone and with a native histogram beside them, and how much
// memory a series then has.
func BenchmarkObserve(b *testing.B) {
	both := Latency("x_seconds", "Help.", .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)
	took := make([]time.Duration, 1<<12)
	for i := range took {
		took[i] = time.Duration(rand.ExpFloat64() * float64(20*time.Millisecond))
	}
	for name, options := range map[string]prometheus.HistogramOpts{
		"classic": {Name: both.Name, Help: both.Help, Buckets: both.Buckets}, "native": both,
	} {
		b.Run(name, func(b *testing.B) {
			const series = 100
			all, before := make([]prometheus.Histogram, series), inUse()
			for i := range all {
				all[i] = prometheus.NewHistogram(options)
				for _, d := range took {
					Observe(all[i], d, "")
				}
			}
			memory := inUse() - before
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				Observe(all[0], took[i%len(took)], "")
			}
			b.ReportMetric(float64(memory)/series, "B/series")
			runtime.KeepAlive(all)
		})
	}
}

// inUse is how much memory is in use.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
