package consumer

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// placeNames spells the places in labels.
var placeNames = [...]string{delivery.FromIngress: "ingress", delivery.FromLane: "lane", delivery.FromTimer: "timer"}

// waitGauges show what a survey has found.
type waitGauges struct {
	ingress, timers *prometheus.GaugeVec // topic
	oldest, open    *prometheus.GaugeVec // place
}

// show sets the gauges: the records that wait, by topic, and the age of the oldest job and how long it is open, by place.
func (g *waitGauges) show(opt *Options, backlog map[string]int64, oldest, open [len(placeNames)]time.Duration) {
	for _, topic := range opt.Ingress {
		g.ingress.WithLabelValues(topic).Set(float64(backlog[topic]))
	}
	for _, timer := range opt.Timers {
		g.timers.WithLabelValues(timer.Topic).Set(float64(backlog[timer.Topic]))
	}
	for place, name := range placeNames {
		g.oldest.WithLabelValues(name).Set(oldest[place].Seconds())
		if delivery.Place(place) != delivery.FromLane {
			g.open.WithLabelValues(name).Set(open[place].Seconds())
		}
	}
}

// nothing shows that nothing waits, as while a daemon has no partitions.
func (g *waitGauges) nothing(opt *Options) {
	g.show(opt, nil, [len(placeNames)]time.Duration{}, [len(placeNames)]time.Duration{})
}

// metrics of one consumer.
type metrics struct {
	fetches         *prometheus.CounterVec // place, result
	records         *prometheus.CounterVec // place
	defects         *prometheus.CounterVec // reason
	openJobs        [3]prometheus.Gauge    // by delivery.Place
	partitions      [3]prometheus.Gauge
	commits         *prometheus.CounterVec // result
	generation      prometheus.Gauge
	joined          prometheus.Gauge
	trimmed         prometheus.Counter
	deleted         prometheus.Counter
	repeated        prometheus.Counter
	resets          prometheus.Counter
	lost            *prometheus.CounterVec // place, cause
	reread          prometheus.Counter
	doubt           prometheus.Counter
	blocked         prometheus.Gauge
	transactions    prometheus.Gauge
	lanesFull       prometheus.Gauge
	unreadableLanes prometheus.Gauge
	stalled         *prometheus.GaugeVec // place
	waiting         waitGauges

	lanes laneWork
}

// Readings are figures of this daemon's partitions, and of the memory for their jobs.
type Readings struct {
	Ingress, Timers int // partitions that it has
	Stalled         int // partitions that make no progress though they could
	Bytes, Most     int64
}

// Readings returns the figures of this daemon. It may be called concurrently.
func (c *Consumer) Readings() Readings {
	partitions := &c.metrics.partitions
	r := Readings{
		Ingress: int(metric.Value(partitions[delivery.FromIngress])), Timers: int(metric.Value(partitions[delivery.FromTimer])),
		Bytes: c.budget.inUse(), Most: c.budget.limit,
	}
	for _, place := range append(placeNames[:], labelGroup) {
		r.Stalled += int(metric.Value(c.metrics.stalled.WithLabelValues(place)))
	}
	return r
}

// laneWork counts what was done in lanes.
type laneWork struct {
	read atomic.Int64 // records read, as often as they were read
	done atomic.Int64 // jobs settled
}

func newMetrics(reg prometheus.Registerer, b *budget) *metrics {
	factory := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	single := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauges := func(name, label, help string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	open := gauges("pacer_open_offsets", "place", "Records read and not settled yet.")
	partitions := gauges("pacer_partitions", "place", "Partitions assigned to this daemon.")
	m := &metrics{
		fetches:    counter("pacer_fetches_total", "Fetch requests.", "place", "result"),
		records:    counter("pacer_records_read_total", "Records read, repeated reads of lanes included.", "place"),
		defects:    counter("pacer_defects_total", "Records that can never be delivered as they are.", "reason"),
		commits:    counter("pacer_commits_total", "Commit requests.", "result"),
		generation: gauge("pacer_group_generation", "Generation of the consumer group."),
		joined:     gauge("pacer_group_joined", "1 while this daemon is a member of the group."),
		trimmed:    single("pacer_lane_metadata_trimmed_total", "Commits of lanes whose metadata had no room for what was settled out of order."),
		deleted:    single("pacer_janitor_deleted_records_total", "Records removed from lanes and timers because every position has passed them."),
		repeated:   single("pacer_lane_repeats_total", "Records of lanes and timers dropped because their twin was read before."),
		resets:     single("pacer_offset_resets_total", "Partitions whose committed offset was out of range, or gone."),
		reread:     single("pacer_ingress_reread_records_total", "Records of ingress read again, because the group's offset was gone."),
		lost: counter("pacer_log_lost_records_total",
			"Records that logs lost before they were read (deleted), or after that (truncated).", "place", "cause"),
		stalled: gauges("pacer_partition_stalled", "place", "Partitions that make no progress though they could."),
		waiting: waitGauges{
			ingress: gauges("pacer_ingress_lag", "topic",
				"Records from the oldest one that is not settled to the end of the log, in the partitions of this daemon."),
			timers: gauges("pacer_timer_backlog", "topic", "Records of a timer that wait until they are due, in the partitions of this daemon."),
			oldest: gauges("pacer_oldest_job_seconds", "place",
				"How long ago the oldest job that is read and not settled was published or, once pacer has moved it, first read."),
			open: gauges("pacer_open_job_seconds", "place",
				"How long the oldest job of ingress and timers has been open: read, and neither sent nor re-enqueued."),
		},
		doubt: single("pacer_drain_in_doubt_total", "Jobs left in doubt by a drain: possible duplicates."),
		blocked: gauge("pacer_partitions_blocked",
			"Partitions of ingress that are not read on, because the next job stays there until there is room (overflow block)."),
		transactions: gauge("pacer_partitions_behind_transaction",
			"Partitions of ingress whose next records are hidden by a transaction that has been open for 10 s or longer."),
		lanesFull:       gauge("pacer_lanes_full", "Lanes that are not read on, because a commit has no room for the positions of more campaigns."),
		unreadableLanes: gauge("pacer_lanes_held", "Lanes that are not read, because the metadata of their offset cannot be read."),
	}
	m.zero(open, partitions)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_buffer_bytes", Help: "Bytes held for jobs and for fetches in flight.",
	}, func() float64 { return float64(b.inUse()) })
	for _, from := range []delivery.Place{delivery.FromIngress, delivery.FromLane} {
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pacer_buffer_wait_seconds", ConstLabels: prometheus.Labels{"place": placeNames[from]},
			Help: "How long the first of the fetches that wait for memory has waited; timers wait with ingress.",
		}, func() float64 { return b.of(from).waitedFor().Seconds() })
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_lane_read_factor", Help: "Records read from lanes per lane job settled; 1 is the least.",
	}, m.lanes.readFactor)
	return m
}

// zero makes the series of all labels, so that each is exported from the start.
func (m *metrics) zero(open, partitions *prometheus.GaugeVec) {
	for place, name := range placeNames {
		m.openJobs[place], m.partitions[place] = open.WithLabelValues(name), partitions.WithLabelValues(name)
		m.records.WithLabelValues(name)
		m.lost.WithLabelValues(name, lostDeleted)
		m.lost.WithLabelValues(name, lostTruncated)
		for _, result := range fetchResults {
			m.fetches.WithLabelValues(name, result)
		}
	}
	for _, place := range append(placeNames[:], labelGroup) {
		m.stalled.WithLabelValues(place)
	}
	for _, result := range commitResults {
		m.commits.WithLabelValues(result)
	}
	for _, reason := range []delivery.Reason{
		delivery.ReasonUndecodable, delivery.ReasonInvalidHeader, delivery.ReasonOverweight, delivery.ReasonTooLarge,
	} {
		m.defects.WithLabelValues(string(reason))
	}
}

// The causes of lost records in labels.
const (
	lostDeleted   = "deleted"   // before they were read, by retention for example
	lostTruncated = "truncated" // after they were read, by the election of a leader that did not have them
)

// The results in labels.
const (
	resultOK     = "ok"
	resultEmpty  = "empty"
	resultError  = "error"
	resultFenced = "fenced"
)

var (
	fetchResults  = []string{resultOK, resultEmpty, resultError}
	commitResults = []string{resultOK, resultFenced, resultError}
)

// readFactor is 1 while nothing was settled, and never less.
func (w *laneWork) readFactor() float64 {
	done := w.done.Load()
	if done == 0 {
		return 1
	}
	return max(1, float64(w.read.Load())/float64(done))
}
