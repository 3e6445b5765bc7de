package sink

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// metrics are the router's metrics. Their labels are the configured sinks and the classes of results.
type metrics struct {
	reg      prometheus.Registerer
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	most     *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	factory := promauto.With(reg)
	return &metrics{
		reg: reg,
		seconds: factory.NewHistogramVec(metric.Latency("pacer_sink_seconds", "Time a sink took to answer for one job, by the class of the answer.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30), []string{"sink", "class"}),
		inFlight: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_jobs_in_flight",
			Help: "Jobs passed to a sink of this daemon that has not answered yet.",
		}, []string{"sink"}),
		most: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_sink_max_in_flight", Help: "Most jobs that a sink of this daemon is passed at once.",
		}, []string{"sink"}),
	}
}

func (m *metrics) route(name string, e Entry) *route {
	m.most.WithLabelValues(name).Set(float64(e.MaxInFlight))
	if m.reg != nil {
		e.Sink.Instrument(prometheus.WrapRegistererWith(prometheus.Labels{"sink": name}, m.reg))
	}
	r := &route{name: name, entry: e, inFlight: m.inFlight.WithLabelValues(name)}
	for _, class := range delivery.ResultClasses {
		r.seconds = append(r.seconds, m.seconds.WithLabelValues(name, class.String()).(prometheus.Histogram))
	}
	return r
}

// observe notes how long a call took, with the trace of the attempt as an exemplar if it is sampled.
func (r *route) observe(ctx context.Context, class delivery.ResultClass, took time.Duration) {
	if class != delivery.Interrupted {
		r.took.Observe(took)
	}
	traceID := ""
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		traceID = span.TraceID().String()
	}
	metric.Observe(r.seconds[class], took, traceID)
}

// Reading is what was counted of a sink since the start.
type Reading struct {
	Sink           string
	InFlight, Most int
	Answers        map[delivery.ResultClass]uint64
	Took           metric.Counts // to answer
	Failure        delivery.Failure
}

// Readings returns what was counted of each sink, in the order of their names.
func (r *Router) Readings() []Reading {
	list := make([]Reading, 0, len(r.routes))
	for _, name := range r.names() {
		rt := r.routes[name]
		one := Reading{
			Sink: name, InFlight: int(metric.Value(rt.inFlight)), Most: rt.entry.MaxInFlight, Took: rt.took.Counts(),
			Answers: make(map[delivery.ResultClass]uint64, len(rt.seconds)),
		}
		if last := rt.failure.Load(); last != nil {
			one.Failure = *last
		}
		for class, seconds := range rt.seconds {
			one.Answers[delivery.ResultClass(class)] = metric.Observed(seconds)
		}
		list = append(list, one)
	}
	return list
}
