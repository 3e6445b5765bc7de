package tracing

import (
	"context"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pacer/pacer/internal/delivery"
)

// Sinks delivers jobs.
type Sinks interface {
	Resolve(name string) (id string, ok bool)
	Capacity(id string) (inFlight int, ok bool)
	Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result
}

// Sinks wraps sinks, so that each attempt to deliver a job has a span.
func (t *Tracer) Sinks(next Sinks) Sinks { return &traced{Sinks: next, tracer: t.tracer} }

type traced struct {
	Sinks
	tracer trace.Tracer
}

// Deliver has the job speak of its attempt's span while the sink has it, if the attempt is sampled.
func (s *traced) Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result {
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer)}
	if from := producer(job); from.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	ctx, span := s.tracer.Start(ctx, "send "+id, options...)
	defer span.End()
	if !span.IsRecording() {
		return s.Sinks.Deliver(ctx, id, job)
	}
	span.SetAttributes(about(id, job, time.Now())...)
	meta := job.Meta
	defer func() { job.Meta = meta }() // also if the sink panics
	job.TraceParent = written(span.SpanContext())
	job.Headers = slices.DeleteFunc(slices.Clone(job.Headers), func(h delivery.Header) bool {
		return h.Key == delivery.HeaderTraceState // of the producer's trace
	})
	result := s.Sinks.Deliver(ctx, id, job)
	result.TraceID = span.SpanContext().TraceID().String()
	span.SetAttributes(attribute.String("pacer.result", result.Class.String()))
	if result.Status > 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", result.Status))
	}
	if result.Class.Fails() || result.Class == delivery.Interrupted { // it was sent, and has not arrived
		span.SetStatus(codes.Error, result.Detail)
	}
	return result
}

// about says what is sent, and how long it has waited.
func about(sink string, job *delivery.Job, now time.Time) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("messaging.system", "kafka"), attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "send"), attribute.String("messaging.message.id", job.ID),
		attribute.String("messaging.destination.name", job.Origin.Topic),
		attribute.String("messaging.destination.partition.id", strconv.Itoa(job.Origin.Partition)),
		attribute.Int64("messaging.kafka.offset", job.Origin.Offset),
		attribute.String("pacer.campaign", job.Campaign), attribute.String("pacer.sink", sink), attribute.Int("pacer.attempt", job.Attempt+1),
	}
	if !job.FirstRead.IsZero() {
		list = append(list, attribute.Float64("pacer.waited", now.Sub(job.FirstRead).Seconds()))
	}
	return list
}

var format propagation.TraceContext

// producer is the producer's span, if the record names one.
func producer(job *delivery.Job) trace.SpanContext {
	if job.TraceParent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{delivery.HeaderTraceParent: job.TraceParent} // a link's state is not sent
	return trace.SpanContextFromContext(format.Extract(context.Background(), carrier))
}

// written is a span as a header says it.
func written(span trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	format.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return carrier[delivery.HeaderTraceParent]
}
