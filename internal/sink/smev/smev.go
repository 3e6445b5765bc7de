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
		client, err := httpcall.New(httpcall.Options{
			URL: address, Version: s.Version, MaxInFlight: c.MaxInFlight + c.Collect.Parallel, Timeout: c.Timeout, MaxConnAge: httpcall.ConnAge,
			TLS: secure, Secrets: []string{p.bearer}, Resent: s.Repeats,
		})
		if err != nil {
			r.Fail(fmt.Errorf("%s: %w", key, err))
		}
		return client
	}
	p.Client = open("url", r.Secret("url", c.URL), r.TLS("", c.certificates()))
	if c.Mode == modeDirect && c.Signer.URL != "" {
		p.signer = open("signer.url", r.Secret("signer.url", c.Signer.URL), r.TLS("signer.", access.Certificates{CAFile: c.Signer.CAFile}))
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

// Check reports whether requests could be sent, without sending one.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	return s.mode.check(ctx)
}

// Instrument registers the sink's own metrics.
func (s *Sink) Instrument(reg prometheus.Registerer) {
	s.Service.Instrument(reg)
	s.metrics.register(reg)
}
