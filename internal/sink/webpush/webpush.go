// Package webpush is the sink that sends jobs to browsers, by their push services (RFC 8030), encrypted (RFC 8291) and signed
// (RFC 8292).
package webpush

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/render"
)

// Sink sends each job as an encrypted message to the endpoint of the job's subscription, and classifies the answer (see
// classify). Endpoints come from jobs, so a guard looks at them, and what is wrong with one origin holds back its jobs alone.
//
// With a topic, a message that is sent a second time replaces the first as long as the push service holds it.
type Sink struct {
	*httpcall.Sink[parts]
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*httpcall.Client
	config *Config
	texts  render.Set
	vapid  *jwt.Stable
}

// Where is told in log lines: endpoints come from jobs.
func (parts) Where() string { return "push services" }

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s, err := httpcall.NewSink(host, httpcall.Dialect[parts]{
		Limits: c.Limits, Build: c.build, Request: parts.request, Classify: classify,
	})
	return &Sink{s}, err
}

func (c *Config) build(r *access.Reader, o httpcall.Options) parts {
	p := parts{config: c, texts: r.Texts(c.texts()...)}
	key, err := readKey(r.Secret("vapid_key", c.Key))
	if err != nil {
		r.Fail(fmt.Errorf("vapid_key: %w", err))
		return p
	}
	p.vapid = newVAPID(key, c.Subject)
	if o.Guard, err = guard.New(c.Guard); err != nil {
		r.Fail(fmt.Errorf("guard.%w", err))
	}
	o.Proxy = r.Secret("proxy", c.Proxy)
	p.Client = c.Client(r, o)
	return p
}

// Bounds on what templates make, in bytes.
const (
	maxSubscription = 8 << 10
	maxText         = 64
)

// Destinations implements base.Sink: each origin of endpoints is a destination. It is "" if a job has none, or if that takes long to find out.
func (s *Sink) Destinations() func(job *delivery.Job) string {
	return func(job *delivery.Job) string {
		to, err := s.Now().subscription(render.NewQuick(job))
		if err != nil {
			return ""
		}
		return httpcall.DestinationOf(to.endpoint)
	}
}

func (p parts) subscription(job *render.Job) (subscription, error) {
	text, err := p.texts.Make("subscription", job, maxSubscription)
	if err != nil {
		return subscription{}, err
	}
	return readSubscription(text)
}

// request makes the request of a job.
func (p parts) request(job *delivery.Job, now time.Time) (r httpcall.Request, err error) {
	view := render.NewJob(job, now)
	to, err := p.subscription(view)
	if err != nil {
		return r, err
	}
	text := job.Payload
	if body := p.texts["body"]; body != nil {
		if text, err = body.Append(nil, view, maxMessage); err != nil {
			return r, err
		}
	}
	if len(text) > maxMessage {
		return r, fmt.Errorf("the message is longer than %d bytes", maxMessage)
	}
	r = httpcall.Request{URL: to.endpoint, Header: http.Header{"TTL": {p.ttl(job, now)}}}
	for _, h := range []struct {
		name, key string
		valid     func(string) bool
	}{{"Urgency", "urgency", isUrgency}, {"Topic", "topic", isTopic}} {
		switch value, err := p.texts.Make(h.key, view, maxText); {
		case err != nil:
			return r, err
		case value != "" && !h.valid(value):
			return r, fmt.Errorf("%s: the template makes something else", h.key)
		case value != "":
			r.Header[h.name] = []string{value}
		}
	}
	if len(text) > 0 {
		r.Header["Content-Encoding"], r.Header["Content-Type"] = []string{"aes128gcm"}, []string{"application/octet-stream"}
		r.Body = encrypt(to, text)
	}
	r.Header["Authorization"] = []string{p.vapid.Token(originOf(to.endpoint), now)}
	return r, nil
}

// ttl returns for how many seconds a push service is to keep the message: no longer than the job is good for.
func (p parts) ttl(job *delivery.Job, now time.Time) string {
	ttl := p.config.TTL
	if !job.ExpiresAt.IsZero() {
		ttl = max(0, min(ttl, job.ExpiresAt.Sub(now)))
	}
	return strconv.FormatInt(int64(ttl/time.Second), 10)
}

// Check connects to the sink's proxy, if it has one: endpoints come from jobs. The key was read when the sink was made.
func (s *Sink) Check(ctx context.Context) error { return s.Now().ConnectProxy(ctx) }

// Unreached says what of the sink Check cannot reach.
func (s *Sink) Unreached() string { return "its endpoints come from jobs, so none was tried" }
