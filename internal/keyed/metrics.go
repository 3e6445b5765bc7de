package keyed

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maxCounted bounds the keys of a quota whose refused jobs are counted. When there are more, and after each decay, the counts are halved, so
	// that the busiest ones remain.
	maxCounted = 256
	decay      = time.Minute
)

// waits counts the jobs that keyed quotas have refused. It is a collector.
type waits struct {
	refused *prometheus.CounterVec

	mu sync.Mutex
	of map[string]*refusals // by quota
}

// refusals are what is counted of one quota.
type refusals struct {
	until  map[int64]int    // jobs whose turns are to come, by the Unix second of the turn
	busy   map[string]int64 // jobs that were refused lately, by their values of the key
	halved time.Time
}

func newWaits(r prometheus.Registerer) *waits {
	return &waits{of: map[string]*refusals{}, refused: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_key_refused_total", Help: "Jobs that a keyed quota has let wait, or capped.",
	}, []string{"quota"})}
}

// tell counts a job that waits for its turn, or is capped, and returns what it is told.
func (w *waits) tell(by *check, wait time.Duration, capped bool) delivery.KeyAnswer {
	w.refused.WithLabelValues(by.quota.ID).Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.of[by.quota.ID]
	if r == nil {
		r = &refusals{until: map[int64]int{}, busy: map[string]int64{}, halved: time.Now()}
		w.of[by.quota.ID] = r
	}
	if _, known := r.busy[by.value]; !known && len(r.busy) >= maxCounted {
		r.halve()
	}
	if len(r.busy) < maxCounted || r.busy[by.value] > 0 {
		r.busy[by.value]++
	}
	if capped {
		return delivery.KeyAnswer{Wait: wait, Capped: by.quota.ID}
	}
	r.until[time.Now().Add(wait).Unix()]++
	if by.turnless() {
		return delivery.KeyAnswer{Wait: wait, Reason: delivery.ReasonKeyLine}
	}
	return delivery.KeyAnswer{Wait: wait, Reason: delivery.ReasonKey}
}

// halve halves the counts of keys, and drops those that come to nothing.
func (r *refusals) halve() {
	maps.DeleteFunc(r.busy, func(_ string, n int64) bool { return n < 2 })
	for value := range r.busy {
		r.busy[value] /= 2
	}
}

// list returns what waits, and forgets what does no more.
func (w *waits) list(now time.Time) (list []delivery.KeyWaits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for quota, r := range w.of {
		maps.DeleteFunc(r.until, func(second int64, _ int) bool { return second < now.Unix() })
		if now.Sub(r.halved) >= decay {
			r.halved = now
			r.halve()
		}
		if len(r.until) == 0 && len(r.busy) == 0 {
			delete(w.of, quota)
			continue
		}
		one := delivery.KeyWaits{Quota: quota}
		for _, n := range r.until {
			one.Waiting += int64(n)
		}
		for value, n := range r.busy {
			one.Busiest = append(one.Busiest, delivery.KeyJobs{Key: value, Jobs: n})
		}
		list = append(list, one)
	}
	return delivery.SumKeyWaits(list)
}

var waitingJobs = prometheus.NewDesc("pacer_key_waiting_jobs", "Jobs that wait for the turns of their keys, as given by this daemon.", []string{"quota"}, nil)

// Describe implements prometheus.Collector.
func (w *waits) Describe(descs chan<- *prometheus.Desc) { descs <- waitingJobs }

// Collect implements prometheus.Collector.
func (w *waits) Collect(metrics chan<- prometheus.Metric) {
	for _, one := range w.list(time.Now()) {
		metrics <- prometheus.MustNewConstMetric(waitingJobs, prometheus.GaugeValue, float64(one.Waiting), one.Quota)
	}
}
