// Package tracing sends spans of what the daemon's sinks do to an OpenTelemetry collector, by OTLP over HTTP.
//
// Each attempt to send a job is a trace of its own, linked to the trace of the job's producer: a job may wait for hours, and a trace
// that lasts as long is of no use. The destination is told of the attempt; the record, through lanes, timers and dead letters, keeps
// what its producer wrote. Names of attributes are those of OpenTelemetry's semantic conventions for messaging systems
// (https://opentelemetry.io/docs/specs/semconv/messaging/kafka/), and pacer.* for the rest.
package tracing

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/pacer/pacer/internal/retry"
)

const (
	// maxQueued bounds the spans that wait to be sent; more are dropped, so that a collector that is away delays no job.
	maxQueued = 4096
	// maxBatch is how many spans a request has at most.
	maxBatch = 512
	// sendTimeout bounds a request, and what is left to do when the daemon ends.
	sendTimeout = 5 * time.Second
	// defaultPath is where a collector takes traces.
	defaultPath = "/v1/traces"
)

// Options configure a Tracer.
type Options struct {
	Endpoint      string        // of the collector: an http or https URL; with its path, or without one for /v1/traces
	Authorization string        // the header of that name; "" for none
	TLS           *tls.Config   // nil: the system's authorities
	Sample        float64       // the part of the attempts that have a span, 0 to 1; those of which the producer's trace is sampled all have
	Host, Version string        // of this daemon
	Every         time.Duration // between two requests; 0: 5 s
	Logger        *slog.Logger
	Registerer    prometheus.Registerer
}

// Tracer makes spans and sends them. Make one with New, and have Run running.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// New makes a Tracer. It opens no connection.
func New(o Options) (*Tracer, error) {
	to, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	settings := []otlptracehttp.Option{
		otlptracehttp.WithEndpoint(to.Host), otlptracehttp.WithURLPath(cmp.Or(to.Path, defaultPath)), otlptracehttp.WithTimeout(sendTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}), // the next batch reports whether it is there again
	}
	if to.Scheme == "http" {
		settings = append(settings, otlptracehttp.WithInsecure())
	}
	if o.TLS != nil {
		settings = append(settings, otlptracehttp.WithTLSClientConfig(o.TLS))
	}
	if o.Authorization != "" {
		settings = append(settings, otlptracehttp.WithHeaders(map[string]string{"Authorization": o.Authorization}))
	}
	spans := promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_spans_total", Help: "Spans that were sent to the collector, or not taken by it.",
	}, []string{"outcome"})
	out := &exporter{
		SpanExporter: otlptrace.NewUnstarted(otlptracehttp.NewClient(settings...)), log: o.Logger,
		sent: spans.WithLabelValues("sent"), failed: spans.WithLabelValues("failed"),
	}
	t := &Tracer{provider: sdk.NewTracerProvider(
		sdk.WithBatcher(out, sdk.WithMaxQueueSize(maxQueued), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(cmp.Or(o.Every, 5*time.Second))),
		sdk.WithSampler(sampler{sdk.TraceIDRatioBased(o.Sample)}),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "pacer"), attribute.String("service.version", o.Version), attribute.String("host.name", o.Host),
		)),
	)}
	t.tracer = t.provider.Tracer("github.com/pacer/pacer")
	return t, nil
}

// Run sends spans until ctx ends, and then what is left.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	_ = t.provider.Shutdown(last) // what a collector does not take is counted
	return nil
}

// sampler follows the sampling of the producer's trace, and samples a part of the other spans.
type sampler struct{ rest sdk.Sampler }

// ShouldSample implements sdk.Sampler.
func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	for _, l := range p.Links {
		if l.SpanContext.IsSampled() {
			return sdk.SamplingResult{Decision: sdk.RecordAndSample}
		}
	}
	return s.rest.ShouldSample(p)
}

// Description implements sdk.Sampler.
func (s sampler) Description() string { return "Linked," + s.rest.Description() }

// exporter counts spans, and has one line in the log for an outage of the collector.
type exporter struct {
	sdk.SpanExporter
	outage       retry.Outage
	log          *slog.Logger
	sent, failed prometheus.Counter
}

// ExportSpans implements sdk.SpanExporter. It returns no error: that would be another line in the log.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.failed.Add(float64(len(spans)))
		if e.outage.Failed() {
			e.log.Warn("the collector of traces does not take spans; they are dropped until it does", "error", err)
		}
		return nil
	}
	e.sent.Add(float64(len(spans)))
	if lasted, over := e.outage.Worked(); over {
		e.log.Info("the collector of traces takes spans again", "outage", lasted)
	}
	return nil
}
