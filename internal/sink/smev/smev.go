// Package smev is the sink that sends jobs as requests of SMEV 3, Russia's system of electronic interaction between
// authorities: through the operator's adapter, or to SMEV itself.
package smev

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
)

// Sink sends each job's payload, an XML document, as the content of a request. Run collects responses, in direct mode, if the
// host has a writer for them.
type Sink struct {
	base.Service[parts]
	config      *Config
	metrics     *metrics
	mode        mode
	attachments *render.Template // nil: none
}

// mode is how requests reach SMEV.
type mode interface {
	// deliver delivers a job. What is sent and answered is noted in shown, unless that is nil.
	deliver(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result
	// check reports whether a request could be sent, without sending one.
	check(ctx context.Context) error
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*sinkhttp.API
	path       string // of its URL
	signer     *sinkhttp.API
	signerPath string
	bearer     string // of the signer
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c, metrics: newMetrics()}
	if c.Attachments != "" {
		var err error
		if s.attachments, err = render.Parse("attachments", c.Attachments, render.Plain); err != nil {
			return nil, fmt.Errorf("attachments: %w", err)
		}
	}
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
	if c.Signer.Bearer != "" {
		p.bearer = r.Secret("signer.bearer", c.Signer.Bearer)
	}
	open := func(key, address string, secure *tls.Config) (api *sinkhttp.API, path string) {
		api, err := sinkhttp.NewAPI(sinkhttp.APIOptions{
			URL: address, Version: s.Version, MaxInFlight: c.MaxInFlight + c.Collect.Parallel, Timeout: c.Timeout, MaxConnAge: sinkhttp.ConnAge,
			TLS: secure, Secrets: []string{p.bearer}, Resent: &s.Repeats,
		})
		u, parseErr := url.Parse(address)
		if errors.Join(err, parseErr) != nil {
			r.Fail(errors.New(key + ": not a URL"))
			return nil, ""
		}
		return api, u.Path
	}
	p.API, p.path = open("url", c.URL, r.TLS(c.certificates()))
	if c.Mode == modeDirect && c.Signer.URL != "" {
		secure := r.TLS(access.Certificates{})
		if c.Signer.CAFile != "" {
			secure.RootCAs = x509.NewCertPool()
			if !secure.RootCAs.AppendCertsFromPEM(r.File("signer.ca_file", c.Signer.CAFile)) {
				r.Fail(fmt.Errorf("signer.ca_file: %s holds no PEM certificate", c.Signer.CAFile))
			}
		}
		p.signer, p.signerPath = open("signer.url", c.Signer.URL, secure)
	}
	return p
}

// Close closes idle connections.
func (p parts) Close() {
	p.API.Close()
	if p.signer != nil {
		p.signer.Close()
	}
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout+grace)
	defer cancel()
	res := s.mode.deliver(limited, job, shown)
	if res.Class == delivery.Interrupted && ctx.Err() == nil { // by the time limit, and not by pacer
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
		res.Detail = "no answer within " + s.config.Timeout.String() + "; the request may have arrived"
	}
	if res.Class != delivery.Delivered {
		res.Detail = s.Now().Scrub(res.Detail)
	}
	return res
}

// grace is by how much a delivery may be longer than one call: a call that ends by its own time limit says more of itself.
const grace = 100 * time.Millisecond

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
