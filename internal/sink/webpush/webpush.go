// Package webpush is the sink that sends jobs to browsers, by their push services (RFC 8030), encrypted (RFC 8291) and signed
// (RFC 8292).
package webpush

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/guard"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
)

// Sink sends each job as an encrypted message to the endpoint of the job's subscription, and classifies the answer (see
// classify). Endpoints come from jobs, so a guard looks at them, and what is wrong with one origin holds back its jobs alone.
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt; with a topic, the
// second one replaces the first as long as the push service holds it.
type Sink struct {
	base.Service[parts]
	config    *Config
	templates map[string]*render.Template // by setting; those that are set
	guard     *guard.Guard
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*sinkhttp.API
	vapid *vapid
}

// Where is told in log lines: endpoints come from jobs.
func (parts) Where() string { return "push services" }

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c, templates: map[string]*render.Template{}}
	var err error
	if s.guard, err = guard.New(c.Guard); err != nil {
		return nil, fmt.Errorf("guard.%w", err)
	}
	for _, t := range c.texts() {
		if t.text == "" {
			continue
		}
		if s.templates[t.key], err = render.Parse(t.key, t.text, render.Plain); err != nil {
			return nil, fmt.Errorf("%s: %w", t.key, err)
		}
	}
	return s, s.Open(host, base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt})
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := s.config
	key, err := readKey(r.Secret("vapid_key", c.Key))
	if err == nil {
		p.vapid, err = newVAPID(key, c.Subject)
	}
	if err != nil {
		r.Fail(fmt.Errorf("vapid_key: %w", err))
	}
	p.API = c.API(r, sinkhttp.APIOptions{Version: s.Version, Resent: &s.Repeats, Guard: s.guard, Proxy: r.Secret("proxy", c.Proxy)})
	return p
}

// Bounds on what templates make, in bytes.
const (
	maxSubscription = 8 << 10
	maxText         = 64
)

// Destinations implements base.Sink: each origin of endpoints is a destination.
func (s *Sink) Destinations() func(job *delivery.Job) string { return s.destination }

// destination returns the origin of the endpoint that a job is sent to; "" if the job has none, or if that takes long to find out.
func (s *Sink) destination(job *delivery.Job) string {
	to, err := s.subscription(render.NewQuick(job))
	if err != nil {
		return ""
	}
	return sinkhttp.DestinationOf(to.endpoint)
}

func (s *Sink) subscription(job *render.Job) (subscription, error) {
	text, err := s.templates["subscription"].Text(job, maxSubscription)
	if err != nil {
		return subscription{}, err
	}
	return readSubscription(text)
}

// message is what is sent for a job.
type message struct {
	to     subscription
	body   []byte
	header http.Header
}

// message makes the message of a job. An error is about the job, and repeats nothing of it.
func (s *Sink) message(job *delivery.Job, now time.Time) (m message, err error) {
	view := render.NewJob(job, now)
	if m.to, err = s.subscription(view); err != nil {
		return m, err
	}
	if refused, isRefusal := guard.Refused(s.guard.URL(m.to.endpoint)); isRefusal {
		return m, errors.New(refused)
	}
	text := job.Payload
	if body := s.templates["body"]; body != nil {
		if text, err = body.Append(nil, view, maxMessage); err != nil {
			return m, err
		}
	}
	if len(text) > maxMessage {
		return m, fmt.Errorf("the message is longer than %d bytes", maxMessage)
	}
	m.header = http.Header{"TTL": {s.ttl(job, now)}}
	for _, h := range []struct {
		name, key string
		valid     func(string) bool
	}{{"Urgency", "urgency", isUrgency}, {"Topic", "topic", isTopic}} {
		value, err := s.text(h.key, view, h.valid)
		if err != nil {
			return m, err
		}
		if value != "" {
			m.header[h.name] = []string{value}
		}
	}
	if len(text) == 0 {
		return m, nil
	}
	m.header["Content-Encoding"], m.header["Content-Type"] = []string{"aes128gcm"}, []string{"application/octet-stream"}
	m.body, err = encrypt(m.to, text)
	return m, err
}

// text returns what the template of a setting makes, "" for nothing.
func (s *Sink) text(key string, job *render.Job, valid func(string) bool) (string, error) {
	t := s.templates[key]
	if t == nil {
		return "", nil
	}
	value, err := t.Text(job, maxText)
	if err == nil && value != "" && !valid(value) {
		err = fmt.Errorf("%s: the template makes something else", key)
	}
	return value, err
}

// ttl returns for how many seconds a push service is to keep the message: no longer than the job is good for.
func (s *Sink) ttl(job *delivery.Job, now time.Time) string {
	ttl := s.config.TTL
	if !job.ExpiresAt.IsZero() {
		ttl = max(0, min(ttl, job.ExpiresAt.Sub(now)))
	}
	return strconv.FormatInt(int64(ttl/time.Second), 10)
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	p, now := s.Now(), time.Now()
	m, err := s.message(job, now)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	authorization, err := p.vapid.header(m.to.endpoint, now)
	if err != nil {
		return delivery.Result{Class: delivery.Misconfigured, Detail: "vapid_key: " + err.Error()}
	}
	m.header["Authorization"] = []string{authorization}
	return p.Ask(ctx, sinkhttp.Request{URL: m.to.endpoint, Header: m.header, Body: m.body, Shown: shown}, classify)
}

// Check connects to the sink's proxy, if it has one: endpoints come from jobs. The key was read when the sink was made.
func (s *Sink) Check(ctx context.Context) error { return s.Now().CheckProxy(ctx) }

// Unreached says what of the sink Check cannot reach.
func (s *Sink) Unreached() string { return "its endpoints come from jobs, so none was tried" }
