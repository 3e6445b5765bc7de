// Package fcm is the sink that sends jobs as messages of Firebase Cloud Messaging, by its HTTP v1 API.
package fcm

import (
	"context"
	"crypto/tls"
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
)

// Options configure a Sink.
type Options struct {
	Config  Config // valid: Config.Problems found none
	Version string // of pacer, for User-Agent
	Logger  *slog.Logger
}

// Sink sends each job's payload as a message, and classifies the answer (see classify). It is safe for concurrent use. Run
// gets the token that messages are sent with; until there is one, Deliver waits, at most for the configured timeout.
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt: the service knows no
// key by which it would recognise it.
type Sink struct {
	options Options
	parts   *access.Kept[parts]
	tokens  *tokens
	resent  atomic.Uint64
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	api    *sinkhttp.API
	key    *serviceAccount // nil: the bearer does not change
	bearer string
	path   string // of a send
	tls    *tls.Config
}

// New makes a Sink. It reads the files that the configuration names and opens no connection.
func New(opt Options) (*Sink, error) {
	if p := opt.Config.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	s := &Sink{options: opt}
	var err error
	if s.parts, err = access.Keep(opt.Config.secrets, s.build); err != nil {
		return nil, err
	}
	s.tokens = newTokens(s.fetch, opt.Logger)
	if bearer := s.parts.Now().bearer; bearer != "" {
		s.tokens.put(bearer)
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
	p.tls = r.TLS(access.Certificates{CAFile: c.CAFile})
	api, err := sinkhttp.NewAPI(sinkhttp.APIOptions{
		URL: c.URL, Version: s.options.Version, MaxInFlight: c.MaxInFlight, Timeout: c.Timeout, MaxConnAge: connAge,
		TLS: p.tls, Secrets: secrets, Resent: &s.resent,
	})
	if err != nil {
		r.Fail(fmt.Errorf("url: %w", err))
	}
	p.api = api
	return p
}

// Deliver sends the job's message and waits for the answer, at most for the configured timeout.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	body, err := request(job.Payload, s.options.Config.ValidateOnly)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	p := s.parts.Now()
	limited, cancel := context.WithTimeout(ctx, s.options.Config.Timeout)
	defer cancel()
	token, problem := s.tokens.get(limited)
	if problem != nil {
		if ctx.Err() != nil {
			return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before there was a token"}
		}
		return *problem
	}
	return s.send(ctx, p, token, body)
}

// send sends the body of a request with the token.
func (s *Sink) send(ctx context.Context, p parts, token string, body []byte) delivery.Result {
	answer, none := p.api.Post(ctx, sinkhttp.Request{
		Path: p.path, Body: body,
		Header: http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json; charset=utf-8"}},
	})
	if none != nil {
		return *none
	}
	res := classify(answer, time.Now())
	if res.Class != delivery.Delivered {
		res.Detail = p.api.Scrub(res.Detail + " from " + p.api.Where())
	}
	if answer.Status == http.StatusUnauthorized && res.Scope == delivery.ScopeSink {
		res.Detail += ": the token is not accepted"
		if p.key != nil {
			s.tokens.refused(token)
		}
	}
	return res
}

// Run gets tokens until ctx is cancelled, and reads the files that the configuration names again.
func (s *Sink) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error {
		if s.parts.Now().key != nil {
			s.tokens.run(ctx)
		}
		return nil
	})
	group.Go(func() error {
		s.parts.Follow(ctx, access.Following[parts]{
			Logger: s.options.Logger, Destination: s.parts.Now().api.Where(), Changed: s.changed,
		})
		return nil
	})
	return group.Wait()
}

// changed is called when a file has changed.
func (s *Sink) changed(old parts) {
	old.api.Close()
	if now := s.parts.Now(); now.key == nil {
		s.tokens.put(now.bearer)
	} else {
		s.tokens.renew()
	}
}

// Check gets a token, and has the service check a message that it does not deliver.
func (s *Sink) Check(ctx context.Context) error {
	p := s.parts.Now()
	token := p.bearer
	if p.key != nil {
		fresh, err := s.fetch(ctx)
		if err != nil {
			return fmt.Errorf("service_account_file: %w", err)
		}
		token = fresh.value
	}
	defer p.api.Close()
	res := s.send(ctx, p, token, []byte(`{"validate_only":true,"message":{"topic":"pacer-check"}}`))
	switch res.Class {
	case delivery.Delivered, delivery.Permanent, delivery.Rejected, delivery.Throttled: // the service knows the project and the token
		return nil
	case delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", res.Detail)
	}
	return fmt.Errorf("project: %s", res.Detail)
}

// Resent returns how many requests were written once more, since the service had certainly not processed them.
func (s *Sink) Resent() uint64 { return s.resent.Load() }

// Close closes idle connections.
func (s *Sink) Close() error {
	s.parts.Now().api.Close()
	return nil
}
