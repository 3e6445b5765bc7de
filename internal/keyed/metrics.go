package keyed

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	refused *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_key_refused_total", Help: "Jobs that a keyed quota has let wait, or capped.",
	}, []string{"quota"})}
}

// waits counts the jobs to which this daemon has given turns that are to come, by quota and second. It is a collector.
type waits struct {
	mu    sync.Mutex
	until map[string]map[int64]int // by quota, then by the Unix second of the turn
}

func newWaits() *waits { return &waits{until: map[string]map[int64]int{}} }

func (w *waits) add(quota string, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until[quota] == nil {
		w.until[quota] = map[int64]int{}
	}
	w.until[quota][due.Unix()]++
}

// waiting returns the number of jobs whose turn is to come, by quota.
func (w *waits) waiting(now time.Time) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := make(map[string]int, len(w.until))
	for quota, turns := range w.until {
		maps.DeleteFunc(turns, func(second int64, _ int) bool { return second < now.Unix() })
		if len(turns) == 0 {
			delete(w.until, quota)
		}
		for _, n := range turns {
			waiting[quota] += n
		}
	}
	return waiting
}

var waitingJobs = prometheus.NewDesc("pacer_key_waiting_jobs", "Jobs that wait for the turns of their keys, as given by this daemon.", []string{"quota"}, nil)

// Describe implements prometheus.Collector.
func (w *waits) Describe(descs chan<- *prometheus.Desc) { descs <- waitingJobs }

// Collect implements prometheus.Collector.
func (w *waits) Collect(metrics chan<- prometheus.Metric) {
	for quota, n := range w.waiting(time.Now()) {
		metrics <- prometheus.MustNewConstMetric(waitingJobs, prometheus.GaugeValue, float64(n), quota)
	}
}
