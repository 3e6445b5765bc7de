// Package smev is the sink that sends jobs as requests of SMEV 3, Russia's system of electronic interaction between
// authorities: through the operator's adapter, or to SMEV itself.
package smev

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// Sink sends each job's payload, an XML document, as the content of a request. Run collects responses, in direct mode, if the
// host has a writer for them.
type Sink struct {
	base.Service[parts]
	config  *Config
	metrics *metrics
	mode    mode
}

// mode is how requests reach SMEV.
type mode interface {
	// deliver delivers a job. It records requests and answers in shown, unless that is nil.
	deliver(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result
	// check reports whether a request could be sent, without sending one.
	check(ctx context.Context) error
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*httpcall.Client
	texts  render.Set
	signer *httpcall.Client // nil: calls are not signed
	bearer string           // of the signer
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c, metrics: newMetrics()}
	d := base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt}
	if s.mode = newAdapter(s); c.Mode == modeDirect {
		to := direct{s}
		if s.mode = to; host.Writer != nil && c.Collect.Enabled {
			d.Work = func(ctx context.Context) { newCollector(to).run(ctx) }
		}
	}
	return s, s.Open(host, d)
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := s.config
	if p.texts = r.Texts(c.texts()); c.Signer.Bearer != "" {
		p.bearer = r.Secret("signer.bearer", c.Signer.Bearer)
	}
	open := func(key, address string, secure *tls.Config) *httpcall.Client {
		return httpcall.Open(r, key, httpcall.Options{
			URL: r.Secret(key, address), Version: s.Version, MaxInFlight: c.MaxInFlight + c.Collect.Parallel, Timeout: c.Timeout,
			MaxConnAge: httpcall.ConnAge, TLS: secure, Secrets: []string{p.bearer}, Resent: &s.Repeats,
		})
	}
	p.Client = open("url", c.URL, r.TLS("", c.certificates()))
	if c.Mode == modeDirect && c.Signer.URL != "" {
		p.signer = open("signer.url", c.Signer.URL, r.TLS("signer.", access.Certificates{CAFile: c.Signer.CAFile}))
	}
	return p
}

// Close closes idle connections.
func (p parts) Close() {
	p.Client.Close()
	if p.signer != nil {
		p.signer.Close()
	}
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout) // of all calls together
	defer cancel()
	res := s.mode.deliver(limited, job, shown)
	if res.Class != delivery.Delivered {
		res.Detail = s.Now().Scrub(res.Detail)
	}
	return res
}

// newRequest returns the request of a job. An error is about the job.
func (s *Sink) newRequest(job *delivery.Job, id string) (r soap.Request, err error) {
	c := s.config
	r = soap.Request{ID: id, ITSystem: c.ITSystem, NodeID: c.NodeID, EOL: job.ExpiresAt, Test: c.TestMessage}
	if r.Content, err = soap.Content(job.Payload); err != nil {
		return r, fmt.Errorf("payload: %w", err)
	}
	if c.Mode == modeDirect {
		r.References, err = attachmentsOf(s, job, referenceProblem)
	} else {
		r.Files, err = attachmentsOf(s, job, fileProblem)
	}
	return r, err
}

// Check reports whether requests could be sent, without sending one.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	return s.mode.check(ctx)
}

// Instrument registers the sink's own metrics.
func (s *Sink) Instrument(reg prometheus.Registerer) {
	s.Service.Instrument(reg)
	reg.MustRegister(s.metrics.collected, s.metrics.again, s.metrics.failed)
}

// metrics are the counters of the collector. Their labels are the kinds of responses, and the steps.
type metrics struct {
	collected *prometheus.CounterVec
	again     prometheus.Counter
	failed    *prometheus.CounterVec
}

// The steps of collecting a response.
const (
	stepGet   = "get"
	stepStore = "store"
	stepAck   = "ack"
)

func newMetrics() *metrics {
	m := &metrics{
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_smev_responses_total", Help: "Responses of SMEV that were written to the topic and acknowledged, by what they say of the request.",
		}, []string{"kind"}),
		again: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_smev_responses_again_total", Help: "Responses of SMEV that came once more and were not written again.",
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_smev_collect_failures_total", Help: "Failures to collect a response of SMEV, by the step; each is tried again.",
		}, []string{"step"}),
	}
	for _, kind := range soap.Kinds {
		m.collected.WithLabelValues(string(kind))
	}
	for _, step := range []string{stepGet, stepStore, stepAck} {
		m.failed.WithLabelValues(step)
	}
	return m
}
