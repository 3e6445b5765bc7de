package tracing

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	producerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampledParent = "00-" + producerTrace + "-00f067aa0ba902b7-01"
	restingParent = "00-" + producerTrace + "-00f067aa0ba902b7-00"
)

// receiver is a collector that keeps what it gets.
type receiver struct {
	*httptest.Server
	away atomic.Bool

	mu    sync.Mutex
	spans []*otlp.Span
	asked []string // paths and credentials
}

func startReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
		var got collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &got) != nil {
			t.Errorf("not a request of traces: %v", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, req.URL.Path+" "+req.Header.Get("Authorization"))
		for _, resource := range got.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// answering is a sink that keeps what a job was when it had it.
type answering struct {
	result delivery.Result
	job    delivery.Job
	state  string
	span   trace.SpanContext
}

func (*answering) Resolve(name string) (string, bool) { return name, true }
func (*answering) Capacity(string) (int, bool)        { return 1, true }
func (a *answering) Deliver(ctx context.Context, _ string, job *delivery.Job) delivery.Result {
	a.job, a.state, a.span = *job, job.TraceState(), trace.SpanContextFromContext(ctx)
	return a.result
}

type rig struct {
	*receiver
	*Tracer
	log  bytes.Buffer
	reg  *prometheus.Registry
	done func()
}

func start(t *testing.T, sample float64) *rig {
	t.Helper()
	r := &rig{receiver: startReceiver(t), reg: prometheus.NewPedanticRegistry()}
	tls := r.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tls.RootCAs = x509.NewCertPool()
	tls.RootCAs.AddCert(r.Certificate())
	var err error
	r.Tracer, err = New(Options{
		Endpoint: r.URL, Authorization: "Bearer sesame", TLS: tls, Sample: sample, Host: "one", Version: "1.2.3",
		Every: time.Hour, Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Registerer: r.reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.done = func() {
		t.Helper()
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return r
}

func job(parent string) *delivery.Job {
	return &delivery.Job{
		ID: "u-42", Campaign: "spring",
		Meta: delivery.Meta{TraceParent: parent, Headers: []delivery.Header{
			{Key: delivery.HeaderTraceState, Value: []byte("a=1")}, {Key: "other", Value: []byte("kept")},
		}},
		History: delivery.History{Attempt: 2, Origin: delivery.Origin{Topic: "jobs", Partition: 3, Offset: 99}, FirstRead: time.Now().Add(-time.Hour)},
	}
}

// TestASpanOfAnAttempt: an attempt has a trace of its own, linked to the producer's, and the destination is told of it; the job
// itself keeps what its producer wrote.
func TestASpanOfAnAttempt(t *testing.T) {
	t.Parallel()
	r := start(t, 0) // nothing but what the producer sampled
	next := &answering{result: delivery.Result{Class: delivery.Throttled, Status: 429, Detail: "slow down"}}
	j := job(sampledParent)
	got := r.Sinks(next).Deliver(t.Context(), "hooks", j)
	if got.Class != delivery.Throttled {
		t.Errorf("%+v", got)
	}
	if j.TraceParent != sampledParent || len(j.Headers) != 2 || j.TraceState() != "a=1" {
		t.Errorf("the job is changed: %+v", j.Meta)
	}
	if next.state != "" || len(next.job.Headers) != 1 || next.job.Headers[0].Key != "other" {
		t.Errorf("the destination got the state of another trace, or lost a header: %q, %v", next.state, next.job.Headers)
	}
	r.done()
	if len(r.spans) != 1 {
		t.Fatalf("%d spans", len(r.spans))
	}
	s := r.spans[0]
	id, span := hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId)
	if got.TraceID != id {
		t.Errorf("the result names the trace %q, want %q", got.TraceID, id)
	}
	if want := "00-" + id + "-" + span + "-01"; next.job.TraceParent != want || id == producerTrace || next.span.TraceID().String() != id {
		t.Errorf("the destination was told of %s, the span is %s", next.job.TraceParent, want)
	}
	if len(s.Links) != 1 || hex.EncodeToString(s.Links[0].TraceId) != producerTrace || len(s.ParentSpanId) != 0 {
		t.Errorf("links %v, parent %x", s.Links, s.ParentSpanId)
	}
	about := map[string]string{}
	for _, a := range s.Attributes {
		about[a.Key] = strings.TrimSpace(a.Value.GetStringValue())
		if n := a.Value.GetIntValue(); n != 0 {
			about[a.Key] = time.Duration(n).String()
		}
	}
	for key, want := range map[string]string{
		"messaging.message.id": "u-42", "messaging.destination.name": "jobs", "messaging.destination.partition.id": "3",
		"messaging.kafka.offset": "99ns", "pacer.campaign": "spring", "pacer.sink": "hooks", "pacer.attempt": "3ns",
		"pacer.result": "throttled", "http.response.status_code": "429ns",
	} {
		if about[key] != want {
			t.Errorf("%s is %q, want %q", key, about[key], want)
		}
	}
	if s.Name != "send hooks" || s.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || s.Status.GetMessage() != "slow down" {
		t.Errorf("%s: %v", s.Name, s.Status)
	}
	if len(r.asked) != 1 || r.asked[0] != "/v1/traces Bearer sesame" {
		t.Error(r.asked)
	}
}

// TestWhichAttemptsHaveASpan: those whose producer's trace is sampled, and of the rest the part that is asked for. Without a span the
// destination gets what the producer wrote.
func TestWhichAttemptsHaveASpan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sample float64
		parent string
		want   bool
	}{
		"sampled by the producer":     {0, sampledParent, true},
		"not sampled by the producer": {0, restingParent, false},
		"no trace":                    {0, "", false},
		"all":                         {1, restingParent, true},
		"all, no trace":               {1, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, next := start(t, tc.sample), &answering{}
			if got := r.Sinks(next).Deliver(t.Context(), "hooks", job(tc.parent)); (got.TraceID != "") != tc.want {
				t.Errorf("the result names the trace %q", got.TraceID)
			}
			r.done()
			if traced := len(r.spans) == 1; traced != tc.want || (next.job.TraceParent == tc.parent) == tc.want {
				t.Errorf("%d spans, sent with %q", len(r.spans), next.job.TraceParent)
			}
			if !tc.want && tc.parent != "" && next.state != "a=1" {
				t.Errorf("the producer's state is lost: %q", next.state)
			}
		})
	}
}

// TestACollectorThatIsAway holds up nothing, is told of once, and its spans are counted.
func TestACollectorThatIsAway(t *testing.T) {
	t.Parallel()
	r, next := start(t, 1), &answering{}
	r.away.Store(true)
	sinks := r.Sinks(next)
	for range 3 {
		sinks.Deliver(t.Context(), "hooks", job(""))
		_ = r.provider.ForceFlush(t.Context())
	}
	r.away.Store(false)
	sinks.Deliver(t.Context(), "hooks", job(""))
	r.done()
	if n := strings.Count(r.log.String(), "level=WARN"); n != 1 || !strings.Contains(r.log.String(), "takes spans again") {
		t.Errorf("%d warnings: %s", n, r.log.String())
	}
	if err := testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP pacer_spans_total Spans that were sent to the collector, or not taken by it.
# TYPE pacer_spans_total counter
pacer_spans_total{outcome="failed"} 3
pacer_spans_total{outcome="sent"} 1
`)); err != nil {
		t.Error(err)
	}
	if strings.Contains(r.log.String(), "sesame") {
		t.Error("a secret in the log")
	}
}
