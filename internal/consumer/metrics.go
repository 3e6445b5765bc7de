package consumer

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// openGauge is the part of a gauge that sources use.
type openGauge interface {
	Inc()
	Dec()
	Sub(float64)
}

// placeNames spells the places in labels.
var placeNames = [...]string{delivery.FromIngress: "ingress", delivery.FromLane: "lane", delivery.FromTimer: "timer"}

// metrics of one consumer.
type metrics struct {
	fetches    *prometheus.CounterVec // place, result
	records    *prometheus.CounterVec // place
	defects    *prometheus.CounterVec // reason
	openJobs   [3]prometheus.Gauge    // by delivery.Place
	partitions [3]prometheus.Gauge
	commits    *prometheus.CounterVec // result
	generation prometheus.Gauge
	joined     prometheus.Gauge
	trimmed    prometheus.Counter
	repeated   prometheus.Counter
	resets     prometheus.Counter
	doubt      prometheus.Counter
	blocked    prometheus.Gauge
	stalled    *prometheus.GaugeVec // place

	laneRead atomic.Int64 // records read from lanes, as often as they were read
	laneDone atomic.Int64 // lane jobs settled
}

func newMetrics(reg prometheus.Registerer, b *budget) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	single := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_open_offsets", Help: "Records read whose fate is not decided yet.",
	}, []string{"place"})
	partitions := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_partitions", Help: "Partitions assigned to this daemon.",
	}, []string{"place"})
	m := &metrics{
		fetches:    counter("pacer_fetches_total", "Fetch requests.", "place", "result"),
		records:    counter("pacer_records_read_total", "Records read, repeated reads of lanes included.", "place"),
		defects:    counter("pacer_defects_total", "Records that can never be delivered as they are.", "reason"),
		commits:    counter("pacer_commits_total", "Commit requests.", "result"),
		generation: gauge("pacer_group_generation", "Generation of the consumer group."),
		joined:     gauge("pacer_group_joined", "1 while this daemon is a member of the group."),
		trimmed: single("pacer_lane_metadata_trimmed_total",
			"Commits of lanes whose metadata had no room for what was settled out of order."),
		repeated: single("pacer_lane_repeats_total", "Lane records dropped because their twin was read before."),
		resets:   single("pacer_offset_resets_total", "Partitions whose committed offset was out of range."),
		stalled:  newStalledGauge(),
		doubt:    single("pacer_drain_in_doubt_total", "Jobs left in doubt by a drain: possible duplicates."),
		blocked: gauge("pacer_partitions_blocked",
			"Partitions of ingress that are not read on, because the next job stays there until there is room (overflow block)."),
	}
	for place, name := range placeNames {
		m.openJobs[place], m.partitions[place] = open.WithLabelValues(name), partitions.WithLabelValues(name)
		m.records.WithLabelValues(name)
		for _, result := range fetchResults {
			m.fetches.WithLabelValues(name, result)
		}
	}
	for _, result := range commitResults {
		m.commits.WithLabelValues(result)
	}
	for _, reason := range []delivery.Reason{
		delivery.ReasonUndecodable, delivery.ReasonInvalidHeader, delivery.ReasonOverweight,
	} {
		m.defects.WithLabelValues(string(reason))
	}
	buffer := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_buffer_bytes", Help: "Bytes held for jobs and for fetches in flight.",
	}, func() float64 { return float64(b.held()) })
	factor := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_lane_read_factor", Help: "Records read from lanes per lane job settled; 1 is the least.",
	}, m.readFactor)
	var errs []error
	for _, c := range []prometheus.Collector{
		m.fetches, m.records, m.defects, open, partitions, m.commits, m.generation, m.joined, m.trimmed, m.repeated,
		m.resets, m.doubt, m.blocked, m.stalled, buffer, factor,
	} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// The results in labels.
const (
	resultOK      = "ok"
	resultEmpty   = "empty"
	resultError   = "error"
	resultFenced  = "fenced"
	resultPartial = "partial"
)

var (
	fetchResults  = []string{resultOK, resultEmpty, resultError}
	commitResults = []string{resultOK, resultPartial, resultFenced, resultError}
)

func (m *metrics) open(place delivery.Place) prometheus.Gauge { return m.openJobs[place] }

// readFactor is 1 while nothing was settled, and never less.
func (m *metrics) readFactor() float64 {
	done := m.laneDone.Load()
	if done == 0 {
		return 1
	}
	return max(1, float64(m.laneRead.Load())/float64(done))
}
