// Package webpush is the sink that sends jobs to browsers, by their push services (RFC 8030), encrypted (RFC 8291) and signed
// (RFC 8292).
package webpush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/guard"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
)

// Options configure a Sink.
type Options struct {
	Config  Config // valid: Config.Problems found none
	Version string // of pacer, for User-Agent
	Logger  *slog.Logger
}

// Sink sends each job as an encrypted message to the endpoint of the job's subscription, and classifies the answer (see
// classify). Endpoints come from jobs, so a guard looks at them, and what is wrong with one origin holds back its jobs alone.
// It is safe for concurrent use.
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt; with a topic, the
// second one replaces the first as long as the push service holds it.
type Sink struct {
	options   Options
	templates map[string]*render.Template // by setting; those that are set
	guard     *guard.Guard
	parts     *access.Kept[parts]
	resent    atomic.Uint64
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	api   *sinkhttp.API
	vapid *vapid
}

// New makes a Sink. It reads the files that the configuration names and opens no connection.
func New(opt Options) (*Sink, error) {
	if p := opt.Config.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	c := &opt.Config
	s := &Sink{options: opt, templates: map[string]*render.Template{}}
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
	s.parts, err = access.Keep(c.secrets, s.build)
	return s, err
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := &s.options.Config
	key, err := readKey(r.Secret("vapid_key", c.Key))
	if err != nil {
		r.Fail(fmt.Errorf("vapid_key: %w", err))
		return p
	}
	if p.vapid, err = newVAPID(key, c.Subject); err != nil {
		r.Fail(fmt.Errorf("vapid_key: %w", err))
	}
	if p.api, err = c.API(r, sinkhttp.APIOptions{
		Version: s.options.Version, Resent: &s.resent, Guard: s.guard, Proxy: r.Secret("proxy", c.Proxy),
	}); err != nil {
		r.Fail(err)
	}
	return p
}

// Bounds on what templates make, in bytes.
const (
	maxSubscription = 8 << 10
	maxText         = 64
)

// Several implements the router's interface: each origin of endpoints is a destination.
func (s *Sink) Several() bool { return true }

// Destination returns the origin of the endpoint that a job is sent to; "" if the job has none.
func (s *Sink) Destination(job *delivery.Job) string {
	to, err := s.subscription(render.NewJob(job, time.Now()))
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
	ttl := s.options.Config.TTL
	if !job.ExpiresAt.IsZero() {
		ttl = max(0, min(ttl, job.ExpiresAt.Sub(now)))
	}
	return strconv.FormatInt(int64(ttl/time.Second), 10)
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
	p, now := s.parts.Now(), time.Now()
	m, err := s.message(job, now)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	authorization, err := p.vapid.header(m.to.endpoint, now)
	if err != nil {
		return delivery.Result{Class: delivery.Misconfigured, Detail: "vapid_key: " + err.Error()}
	}
	m.header["Authorization"] = []string{authorization}
	answer, none := p.api.Post(ctx, sinkhttp.Request{URL: m.to.endpoint, Header: m.header, Body: m.body, Shown: shown})
	if none != nil {
		return *none
	}
	res := classify(answer, time.Now())
	if res.Class != delivery.Delivered {
		res.Detail += " from " + m.to.endpoint.Host
	}
	return res
}

// Run reads the files that the configuration names again, until ctx is cancelled.
func (s *Sink) Run(ctx context.Context) error {
	s.parts.Follow(ctx, access.Following[parts]{
		Logger: s.options.Logger, Destination: "push services", Changed: func(old parts) { old.api.Close() },
	})
	return nil
}

// Check connects to the sink's proxy, if it has one: endpoints come from jobs. The key was read when the sink was made.
func (s *Sink) Check(ctx context.Context) error { return s.parts.Now().api.CheckProxy(ctx) }

// Unreached says what of the sink Check cannot reach.
func (s *Sink) Unreached() string { return "its endpoints come from jobs, so none was tried" }

// Resent returns how many requests were written once more, since the service had certainly not processed them.
func (s *Sink) Resent() uint64 { return s.resent.Load() }

// Close closes idle connections.
func (s *Sink) Close() error {
	s.parts.Now().api.Close()
	return nil
}
