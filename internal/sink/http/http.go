// Package http is the sink that POSTs jobs to a URL: the payload as it is, the metadata in headers.
package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	maxAnswerHeader = 64 << 10 // bytes of the answer's header; more is no answer
	maxAnswerBody   = 64 << 10 // bytes of the answer's body read to keep the connection; beyond it the connection is closed
	idleTimeout     = 30 * time.Second
	keepAlive       = 15 * time.Second
	pingAfter       = 5 * time.Second // HTTP/2: an idle connection is asked whether it still is one

	defaultContentType = "application/octet-stream"
)

// Headers of a request, in the form net/http looks them up by.
const (
	keyWebhookID      = "Webhook-Id"
	keyIdempotency    = "Idempotency-Key"
	keyCampaign       = "Pacer-Campaign"
	keyAttempt        = "Pacer-Attempt"
	keyContentType    = "Content-Type"
	keyTraceParent    = "Traceparent"
	keyUserAgent      = "User-Agent"
	keyAuthorization  = "Authorization"
	headersOfEveryJob = 8
)

// Options configure a Sink.
type Options struct {
	Config  Config         // valid: Config.Problems found none
	Version string         // of pacer, for User-Agent
	RootCAs *x509.CertPool // what Config.CAFile holds; nil for the system's
}

// Sink POSTs each job and classifies the answer (see classify). It is safe for use by many goroutines at once and
// starts none but those of net/http, which end with Close.
//
// A request is written at most once: neither a redirect is followed nor a failed request repeated here, whatever
// net/http thinks of it. See request for how; trying again is the pacer's decision, since every attempt takes its own
// slot and a second copy would be a duplicate at the receiver.
type Sink struct {
	target    *url.URL // without user and password
	where     string   // host and port, for details
	fixed     []field  // sent with every request; never written to
	timeout   time.Duration
	transport *http.Transport
	secrets   []string // never to appear in a detail
}

// field is one header that every request has, in a slice since that is cheaper to go through than a map.
type field struct {
	name   string
	values []string
}

// New makes a Sink. It performs no I/O.
func New(opt Options) (*Sink, error) {
	cfg := opt.Config
	if p := cfg.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	target, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("url: not a URL") // the parser's own error repeats the URL, and with it the password
	}
	s := &Sink{where: target.Host, timeout: cfg.Timeout}
	fixed := make(http.Header, len(cfg.Headers)+2)
	fixed.Set(keyUserAgent, "pacer/"+opt.Version)
	if u := target.User; u != nil {
		pw, _ := u.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + pw))
		fixed.Set(keyAuthorization, "Basic "+basic)
		s.secrets = append(s.secrets, u.String(), pw, basic)
		target.User = nil
	}
	if target.RawQuery != "" {
		s.secrets = append(s.secrets, target.RawQuery)
	}
	for name, value := range cfg.Headers {
		fixed.Set(name, value)
		s.secrets = append(s.secrets, value)
	}
	for name, values := range fixed {
		s.fixed = append(s.fixed, field{name, values})
	}
	s.target = target
	s.transport = newTransport(cfg, opt)
	return s, nil
}

func newTransport(cfg Config, opt Options) *http.Transport {
	dialer := &net.Dialer{Timeout: cfg.Timeout, KeepAlive: keepAlive}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opt.RootCAs},
		TLSHandshakeTimeout:    cfg.Timeout,
		ForceAttemptHTTP2:      true, // a TLSClientConfig of one's own would switch it off
		MaxIdleConns:           cfg.MaxInFlight,
		MaxIdleConnsPerHost:    cfg.MaxInFlight,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // the body is thrown away
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
	return t
}

// Deliver POSTs the job and waits for the answer, at most for the configured timeout.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, problem := s.request(limited, job)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		// The caller's context is asked first: limited is done as well then, and a call that pacer itself gave up says
		// nothing about the destination.
		if ctx.Err() != nil {
			return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before " + s.where + " answered"}
		}
		return s.unreachable(err, limited.Err() != nil)
	}
	res := s.classify(resp, time.Now())
	finish(resp)
	return res
}

// request makes the job's request. The template approach (no http.NewRequest, a header map sized once, one array for
// all values) keeps a delivery at a handful of allocations. A job whose metadata cannot be written as headers comes
// back with the problem instead: it will never be deliverable, and net/http's own error for it would look like a
// failure to connect.
func (s *Sink) request(ctx context.Context, job *delivery.Job) (req *http.Request, problem string) {
	contentType := job.ContentType
	if contentType == "" {
		contentType = defaultContentType
	}
	for _, h := range [...]struct{ name, value string }{
		{delivery.HeaderJobID, job.ID}, {delivery.HeaderCampaign, job.Campaign}, {delivery.HeaderContentType, contentType},
		{delivery.HeaderTraceParent, job.TraceParent},
	} {
		if !validValue(h.value) || len(h.value) > maxHeaderBytes {
			return nil, h.name + " cannot be sent as an HTTP header: it has control characters or is too long"
		}
	}
	// The destination is told which attempt this is, from 1 on; job.Attempt counts those before it.
	values := [...]string{job.ID, job.Campaign, strconv.Itoa(job.Attempt + 1), contentType, job.TraceParent}
	header := make(http.Header, headersOfEveryJob+len(s.fixed))
	for _, f := range s.fixed {
		header[f.name] = f.values
	}
	v := values[:]
	header[keyWebhookID] = v[0:1:1]
	header[keyCampaign] = v[1:2:2]
	header[keyAttempt] = v[2:3:3]
	header[keyContentType] = v[3:4:4]
	if job.TraceParent != "" {
		header[keyTraceParent] = v[4:5:5]
	}
	template := http.Request{
		Method:        http.MethodPost,
		URL:           s.target,
		Host:          s.target.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		ContentLength: int64(len(job.Payload)),
	}
	// net/http takes the Idempotency-Key header as leave to send a POST again on another connection when the first one
	// breaks before the answer, even though it was written in full: a duplicate that no counter of pacer's would ever
	// see. It does so only for a request without a body or with GetBody, so there is no GetBody. A request that has no
	// body carries the header in a spelling that net/http does not look for; to servers, case makes no difference. (A
	// body that is merely empty would be sent chunked, which not every server takes.)
	if len(job.Payload) > 0 {
		header[keyIdempotency] = v[0:1:1]
		// A NopCloser around a bytes.Reader is what net/http knows to be in memory: it then sends header and body in one
		// write instead of two.
		template.Body = io.NopCloser(bytes.NewReader(job.Payload))
	} else {
		header[strings.ToLower(keyIdempotency)] = v[0:1:1]
		template.Body = http.NoBody
	}
	return template.WithContext(ctx), ""
}

// finish reads the rest of the answer, so that the connection can be used again, up to a bound. The deadline of
// the call holds for it too; the answer itself is known already, so failing here changes nothing.
func finish(resp *http.Response) {
	if resp.Body != http.NoBody && resp.ContentLength <= maxAnswerBody {
		_, _ = io.CopyN(io.Discard, resp.Body, maxAnswerBody+1)
	}
	_ = resp.Body.Close()
}

// Check connects to the destination, with TLS where the URL says so, and sends no request.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	address := s.target.Host
	if s.target.Port() == "" {
		address = net.JoinHostPort(s.target.Hostname(), map[string]string{"http": "80", "https": "443"}[s.target.Scheme])
	}
	var conn net.Conn
	var err error
	if s.target.Scheme == "https" {
		cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.transport.TLSClientConfig.RootCAs}
		conn, err = (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return fmt.Errorf("url: cannot connect: %w", err)
	}
	return conn.Close()
}

// Close closes idle connections.
func (s *Sink) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}
