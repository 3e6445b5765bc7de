// Package smev is the sink that sends jobs as requests of SMEV 3, Russia's system of electronic interaction between
// authorities: through the operator's adapter, or to SMEV itself.
package smev

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
)

// Writer writes a record to a topic of the daemon's own Kafka, in the partition of its key. It returns nil once all in-sync
// replicas have it, and tooLarge if the topic never takes it.
type Writer interface {
	Write(ctx context.Context, topic string, record delivery.Record) (tooLarge bool, err error)
}

// Options configure a Sink.
type Options struct {
	Config  Config // valid: Config.Problems found none
	Version string // of pacer, for User-Agent
	Logger  *slog.Logger
	// Writer keeps responses; nil where there is no daemon, and then none are taken.
	Writer Writer
}

// Sink sends each job's payload, an XML document, as the content of a request. It is safe for concurrent use. Run
// collects responses, in direct mode.
type Sink struct {
	config  Config
	version string
	log     *slog.Logger
	writer  Writer
	metrics *metrics
	parts   *access.Kept[parts]
	mode    mode
	resent  atomic.Uint64

	attachments *render.Template // nil: none
}

// mode is how requests reach SMEV.
type mode interface {
	// deliver delivers a job. What is sent and answered is noted in shown, unless that is nil.
	deliver(ctx context.Context, job *delivery.Job, shown *sinkhttp.Exchange) delivery.Result
	// check tells whether a request could be sent, without sending one.
	check(ctx context.Context) error
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	api        *sinkhttp.API
	path       string // of its URL
	signer     *sinkhttp.API
	signerPath string
	bearer     string // of the signer
}

// New makes a Sink. It reads the files that the configuration names and opens no connection.
func New(opt Options) (*Sink, error) {
	if p := opt.Config.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	s := &Sink{config: opt.Config, version: opt.Version, log: opt.Logger, writer: opt.Writer, metrics: newMetrics()}
	var err error
	if s.parts, err = access.Keep(opt.Config.secrets, s.build); err != nil {
		return nil, err
	}
	if c := opt.Config.Attachments; c != "" {
		if s.attachments, err = render.Parse("attachments", c, render.Plain); err != nil {
			return nil, fmt.Errorf("attachments: %w", err)
		}
	}
	s.mode = newAdapter(s)
	if opt.Config.Mode == modeDirect {
		s.mode = direct{s}
	}
	return s, nil
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := &s.config
	if c.Signer.Bearer != "" {
		p.bearer = r.Secret("signer.bearer", c.Signer.Bearer)
	}
	open := func(key, address string, secure *tls.Config) (api *sinkhttp.API, path string) {
		api, err := sinkhttp.NewAPI(sinkhttp.APIOptions{
			URL: address, Version: s.version, MaxInFlight: c.MaxInFlight + c.Collect.Parallel, Timeout: c.Timeout, MaxConnAge: connAge,
			TLS: secure, Secrets: []string{p.bearer}, Resent: &s.resent, Judged: true,
		})
		u, parseErr := url.Parse(address)
		if errors.Join(err, parseErr) != nil {
			r.Fail(errors.New(key + ": not a URL"))
			return nil, ""
		}
		return api, u.Path
	}
	p.api, p.path = open("url", c.URL, r.TLS(c.certificates()))
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

func (p parts) close() {
	p.api.Close()
	if p.signer != nil {
		p.signer.Close()
	}
}

// Deliver sends the job's request, or goes on with it, and waits for the answer, at most for the configured timeout.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	return s.attempt(ctx, job, nil)
}

// Try delivers a job as Deliver does, and returns the last request and its answer as text.
func (s *Sink) Try(ctx context.Context, job *delivery.Job) (res delivery.Result, request, answer string) {
	return sinkhttp.Trying(func(shown *sinkhttp.Exchange) delivery.Result { return s.attempt(ctx, job, shown) })
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *sinkhttp.Exchange) delivery.Result {
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout+grace)
	defer cancel()
	res := s.mode.deliver(limited, job, shown)
	if res.Class == delivery.Interrupted && ctx.Err() == nil { // by the time limit, and not by pacer
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
		res.Detail = "no answer within " + s.config.Timeout.String() + "; the request may have arrived"
	}
	if res.Class != delivery.Delivered {
		res.Detail = s.parts.Now().api.Scrub(res.Detail)
	}
	return res
}

// grace is by how much a delivery may be longer than one call: a call that ends by its own time limit says more of itself.
const grace = 100 * time.Millisecond

// Run collects responses until ctx is cancelled, and reads the files that the configuration names again.
func (s *Sink) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error {
		s.parts.Follow(ctx, access.Following[parts]{Logger: s.log, Destination: s.parts.Now().api.Where(), Changed: parts.close})
		return nil
	})
	if d, ok := s.mode.(direct); ok && s.writer != nil && s.config.Collect.Enabled {
		group.Go(func() error { newCollector(d).run(ctx); return nil })
	}
	return group.Wait()
}

// Check tells whether requests could be sent, without sending one.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	return s.mode.check(ctx)
}

// Instrument registers the sink's own metrics.
func (s *Sink) Instrument(reg prometheus.Registerer) { s.metrics.register(reg) }

// Resent returns how many requests were written once more, since the destination had certainly not processed them.
func (s *Sink) Resent() uint64 { return s.resent.Load() }

// Close closes idle connections.
func (s *Sink) Close() error {
	s.parts.Now().close()
	return nil
}
