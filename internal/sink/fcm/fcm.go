// Package fcm is the sink that sends jobs as messages of Firebase Cloud Messaging, by its HTTP v1 API, and of services that
// have taken over that API.
package fcm

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// Dialect is how a service that has the same API differs.
type Dialect struct {
	// Classify returns the result for an answer.
	Classify func(a sinkhttp.Answer, now time.Time) delivery.Result
	// Check is a request that delivers nothing.
	Check string
}

// checkMessage has the service validate a message.
const checkMessage = `{"validate_only":true,"message":{"topic":"pacer-check"}}`

// Sink sends each job's payload as a message, and classifies the answer (see classify). Until there is the token that messages
// are sent with, Deliver waits, at most for the configured timeout.
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt: the service knows no
// key by which it would recognise it.
type Sink struct {
	base.Service[parts]
	config  *Config
	dialect Dialect
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*sinkhttp.API
	key    *serviceAccount // nil: the bearer does not change
	bearer string
	path   string // of a send
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	return NewDialect(c, host, Dialect{Classify: classify, Check: checkMessage})
}

// NewDialect makes a Sink for another service with the same API.
func NewDialect(c *Config, host base.Host, d Dialect) (*Sink, error) {
	s := &Sink{config: c, dialect: d}
	of := base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt}
	if c.KeyFile != "" {
		of.Fetch = s.fetch
	}
	return s, s.Open(host, of)
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := s.config
	project, secrets := c.Project, []string(nil)
	if c.KeyFile != "" {
		var err error
		if p.key, err = readServiceAccount(r.File("service_account_file", c.KeyFile)); err != nil {
			r.Fail(fmt.Errorf("service_account_file: %s %w", c.KeyFile, err))
			return p
		}
		project = cmp.Or(project, p.key.Project)
	} else {
		p.bearer = r.Secret("bearer", c.Bearer)
		secrets = append(secrets, p.bearer)
	}
	if !projectPattern.MatchString(project) {
		r.Fail(fmt.Errorf("project: required, since %s names none", c.KeyFile))
		return p
	}
	p.path = "/v1/projects/" + url.PathEscape(project) + "/messages:send"
	p.API = c.API(r, sinkhttp.APIOptions{Version: s.Version, Secrets: secrets, Resent: &s.Repeats})
	return p
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	body, err := request(job.Payload, s.config.ValidateOnly)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	p := s.Now()
	send := func(bearer string) delivery.Result {
		return s.send(ctx, p, bearer, sinkhttp.Request{Body: body, Shown: shown})
	}
	if p.key == nil {
		return send(p.bearer)
	}
	return s.WithToken(ctx, s.config.Timeout, send, refusesToken)
}

// refusesToken reports whether an answer is about the token that the request was sent with.
func refusesToken(res *delivery.Result) bool {
	return res.Status == http.StatusUnauthorized && res.Class == delivery.Misconfigured
}

// send sends a request with the token.
func (s *Sink) send(ctx context.Context, p parts, bearer string, r sinkhttp.Request) delivery.Result {
	r.Path = p.path
	r.Header = http.Header{"Authorization": {"Bearer " + bearer}, "Content-Type": {"application/json; charset=utf-8"}}
	res := p.Ask(ctx, r, s.dialect.Classify)
	if refusesToken(&res) {
		res.Detail += ": the token is not accepted"
	}
	return res
}

// Check gets a token, and has the service look at a message that it does not deliver.
func (s *Sink) Check(ctx context.Context) error {
	p := s.Now()
	defer p.Close()
	bearer, key := p.bearer, "bearer"
	if p.key != nil {
		fresh, err := s.fetch(ctx)
		if err != nil {
			return err
		}
		bearer, key = fresh.Value, "service_account_file"
	}
	res := s.send(ctx, p, bearer, sinkhttp.Request{Body: []byte(s.dialect.Check)})
	switch {
	case res.Class == delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", res.Detail)
	case res.Class == delivery.Misconfigured && res.Status == http.StatusUnauthorized:
		return fmt.Errorf("%s: %s", key, res.Detail)
	case res.Class == delivery.Misconfigured || res.Class == delivery.Temporary || res.Class == delivery.Permanent && res.Status == http.StatusNotFound:
		return fmt.Errorf("project: %s", res.Detail)
	}
	return nil // the service knows the project and the token
}
