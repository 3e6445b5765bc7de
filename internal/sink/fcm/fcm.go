// Package fcm is the sink that sends jobs as messages of Firebase Cloud Messaging, by its HTTP v1 API, and of services that
// have taken over that API.
package fcm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/token"
)

// Options configure a Sink.
type Options struct {
	Config  Config // valid: Config.Problems found none
	Version string // of pacer, for User-Agent
	Logger  *slog.Logger
	// Dialect is that of another service with the same API; the zero value is that of Firebase Cloud Messaging.
	Dialect Dialect
}

// Dialect is how a service that has the same API differs.
type Dialect struct {
	// Classify returns the result for an answer.
	Classify func(a sinkhttp.Answer, now time.Time) delivery.Result
	// Check is a request that delivers nothing.
	Check string
}

// checkMessage has the service validate a message.
const checkMessage = `{"validate_only":true,"message":{"topic":"pacer-check"}}`

// Sink sends each job's payload as a message, and classifies the answer (see classify). It is safe for concurrent use. Run
// gets the token that messages are sent with; until there is one, Deliver waits, at most for the configured timeout.
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt: the service knows no
// key by which it would recognise it.
type Sink struct {
	options Options
	parts   *access.Kept[parts]
	tokens  *token.Source // nil: the bearer does not change
	resent  atomic.Uint64
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	api    *sinkhttp.API
	key    *serviceAccount // nil: the bearer does not change
	bearer string
	path   string // of a send
}

// New makes a Sink. It reads the files that the configuration names and opens no connection.
func New(opt Options) (*Sink, error) {
	if p := opt.Config.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	if opt.Dialect.Classify == nil {
		opt.Dialect = Dialect{Classify: classify, Check: checkMessage}
	}
	s := &Sink{options: opt}
	var err error
	if s.parts, err = access.Keep(opt.Config.secrets, s.build); err != nil {
		return nil, err
	}
	if p := s.parts.Now(); p.key != nil {
		s.tokens = token.New(token.Options{Fetch: s.fetch, Logger: opt.Logger, Destination: p.api.Where()})
	}
	return s, nil
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := &s.options.Config
	project, secrets := c.Project, []string(nil)
	if c.KeyFile != "" {
		var err error
		if p.key, err = readServiceAccount(r.File("service_account_file", c.KeyFile)); err != nil {
			r.Fail(fmt.Errorf("service_account_file: %s %w", c.KeyFile, err))
			return p
		}
		if project == "" {
			project = p.key.Project
		}
	} else {
		p.bearer = r.Secret("bearer", c.Bearer)
		secrets = append(secrets, p.bearer)
	}
	if !projectPattern.MatchString(project) {
		r.Fail(fmt.Errorf("project: required, since %s names none", c.KeyFile))
		return p
	}
	p.path = "/v1/projects/" + url.PathEscape(project) + "/messages:send"
	var err error
	if p.api, err = c.API(r, sinkhttp.APIOptions{Version: s.options.Version, Secrets: secrets, Resent: &s.resent}); err != nil {
		r.Fail(err)
	}
	return p
}

// Deliver sends the job's message and waits for the answer, at most for the configured timeout.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	return s.attempt(ctx, job, nil)
}

// Try delivers a job as Deliver does, and returns the request and its answer as text.
func (s *Sink) Try(ctx context.Context, job *delivery.Job) (res delivery.Result, request, answer string) {
	return sinkhttp.Trying(func(shown *sinkhttp.Exchange) delivery.Result { return s.attempt(ctx, job, shown) })
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *sinkhttp.Exchange) delivery.Result {
	body, err := request(job.Payload, s.options.Config.ValidateOnly)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	p := s.parts.Now()
	if s.tokens == nil {
		return s.send(ctx, p, p.bearer, sinkhttp.Request{Body: body, Shown: shown})
	}
	limited, cancel := context.WithTimeout(ctx, s.options.Config.Timeout)
	defer cancel()
	held, none := s.tokens.Need(ctx, limited)
	if none != nil {
		return *none
	}
	res := s.send(ctx, p, held.Value, sinkhttp.Request{Body: body, Shown: shown})
	if res.Status == http.StatusUnauthorized && res.Scope == delivery.ScopeSink {
		s.tokens.Refused(held)
	}
	return res
}

// send sends a request with the token.
func (s *Sink) send(ctx context.Context, p parts, bearer string, r sinkhttp.Request) delivery.Result {
	r.Path = p.path
	r.Header = http.Header{"Authorization": {"Bearer " + bearer}, "Content-Type": {"application/json; charset=utf-8"}}
	answer, none := p.api.Post(ctx, r)
	if none != nil {
		return *none
	}
	res := s.options.Dialect.Classify(answer, time.Now())
	if res.Class != delivery.Delivered {
		res.Detail = p.api.Scrub(res.Detail + " from " + p.api.Where())
	}
	if answer.Status == http.StatusUnauthorized && res.Scope == delivery.ScopeSink {
		res.Detail += ": the token is not accepted"
	}
	return res
}

// Run gets tokens until ctx is cancelled, and reads the files that the configuration names again.
func (s *Sink) Run(ctx context.Context) error {
	var group errgroup.Group
	if s.tokens != nil {
		group.Go(func() error { s.tokens.Run(ctx); return nil })
	}
	s.parts.Follow(ctx, access.Following[parts]{
		Logger: s.options.Logger, Destination: s.parts.Now().api.Where(), Changed: s.changed,
	})
	return group.Wait()
}

// changed is called when a file has changed.
func (s *Sink) changed(old parts) {
	old.api.Close()
	if s.tokens != nil {
		s.tokens.Renew()
	}
}

// Check gets a token, and has the service look at a message that it does not deliver.
func (s *Sink) Check(ctx context.Context) error {
	p := s.parts.Now()
	defer p.api.Close()
	bearer, key := p.bearer, "bearer"
	if p.key != nil {
		fresh, err := s.fetch(ctx)
		if err != nil {
			return err
		}
		bearer, key = fresh.Value, "service_account_file"
	}
	res := s.send(ctx, p, bearer, sinkhttp.Request{Body: []byte(s.options.Dialect.Check)})
	switch {
	case res.Class == delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", res.Detail)
	case res.Class == delivery.Misconfigured && res.Status == http.StatusUnauthorized:
		return fmt.Errorf("%s: %s", key, res.Detail)
	case res.Class == delivery.Misconfigured || res.Class == delivery.Temporary:
		return fmt.Errorf("project: %s", res.Detail)
	}
	return nil // the service knows the project and the token
}

// Resent returns how many requests were written once more, since the service had certainly not processed them.
func (s *Sink) Resent() uint64 { return s.resent.Load() }

// Close closes idle connections.
func (s *Sink) Close() error {
	s.parts.Now().api.Close()
	return nil
}
