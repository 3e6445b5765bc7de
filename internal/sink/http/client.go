package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/rule"
	"github.com/pacer/pacer/internal/sink/signature"
)

const (
	idleTimeout = 30 * time.Second
	keepAlive   = 15 * time.Second
	pingAfter   = 5 * time.Second // HTTP/2: an idle connection is pinged after this long

	defaultContentType = "application/octet-stream"
)

// Headers of a request, in the canonical form of net/http but for keyIdempotency. A POST with an Idempotency-Key may be
// sent again by net/http on another connection if the first one breaks before the answer, even if it was written in
// full: a duplicate that none of pacer's counters would show. In this spelling net/http does not look for it; servers
// ignore case. X-Idempotency-Key is treated alike.
const (
	keyWebhookID      = "Webhook-Id"
	keyIdempotency    = "idempotency-key"
	keyCampaign       = "Pacer-Campaign"
	keyAttempt        = "Pacer-Attempt"
	keyContentType    = "Content-Type"
	keyTimestamp      = "Webhook-Timestamp"
	keySignature      = "Webhook-Signature"
	keyTraceParent    = "Traceparent"
	keyTraceState     = "Tracestate"
	keyUserAgent      = "User-Agent"
	keyAuthorization  = "Authorization"
	keyConnection     = "Connection"
	headersOfEveryJob = 5 // not more than needed: a map of up to eight takes half of the memory of a larger one
	headersOfTrace    = 2
)

// client is what a Sink makes of its configuration and of the files that it names. It never changes.
type client struct {
	config    *Config // with the secrets as they are now
	reach     reach
	guard     *guard.Guard // nil if one host is the same for all jobs
	target    *url.URL     // without user and password
	where     string       // host and port, for details
	endpoint  string       // the id in pacer.destinations; "" if it has none
	method    string
	form      *form             // nil: each job's request is made of its payload and metadata alone
	events    string            // the mode of CloudEvents; "" for none
	signer    *signature.Signer // nil: requests are not signed
	rules     *rule.Set         // nil: an answer means what its status says by default
	fixed     []field           // sent with every request; read-only
	typed     bool              // the content type is one of them
	timeout   time.Duration
	transport *http.Transport
	trusted   *http.Transport // for an address that the configuration names; the same unless there is a guard
	pool      *pool           // nil: the connections are those of the transport
	hidden    []string
	secrets   *strings.Replacer // of these: replaces what must not appear in a detail
}

// field is a header of every request. A slice of them is cheaper to iterate over than a map.
type field struct {
	name   string
	values []string
}

func newClient(cfg *Config, secure *tls.Config, version string) (*client, error) {
	address, _ := cfg.sample()
	target, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("url: not a URL") // the parser's own error repeats the URL, and with it the password
	}
	c := &client{config: cfg, reach: cfg.reach(), where: target.Host, events: cfg.CloudEvents, method: cmp.Or(cfg.Method, http.MethodPost), timeout: cfg.Timeout}
	if c.form, err = cfg.form(); err != nil {
		return nil, err
	}
	if c.rules, err = cfg.judging(); err != nil {
		return nil, err
	}
	if c.signer, err = cfg.signing(); err != nil {
		return nil, err
	}
	secrets := append(slices.Clone(cfg.Sign.Secrets), target.RawQuery)
	if c.form != nil {
		for _, text := range c.form.texts() {
			secrets = append(secrets, strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" =&", c) })...)
		}
	}
	for _, values := range target.Query() {
		secrets = append(secrets, values...)
	}
	if cfg.Sources["url"] != nil { // such as that of a hook whose path lets whoever knows it send
		secrets = append(secrets, target.EscapedPath(), target.Path)
	}
	fixed := make(http.Header, len(cfg.Headers)+2)
	fixed.Set(keyUserAgent, "pacer/"+version)
	if u := target.User; u != nil {
		pw, _ := u.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + pw))
		fixed.Set(keyAuthorization, "Basic "+basic)
		secrets = append(secrets, u.String(), pw, basic)
		target.User = nil
	}
	if value, parts := cfg.authorization(); value != "" {
		fixed.Set(keyAuthorization, value)
		secrets = append(secrets, parts...)
	}
	secrets = append(secrets, cfg.OAuth2.ClientSecret)
	for name, value := range cfg.Headers {
		if cfg.isTemplate("headers."+name, value) {
			continue
		}
		fixed.Set(name, value)
		secrets = append(append(secrets, value), strings.Fields(value)...)
	}
	for name, values := range fixed {
		c.fixed = append(c.fixed, field{spelling(name), values})
		c.typed = c.typed || name == keyContentType
	}
	if u, err := url.Parse(cfg.Proxy); err == nil && u.User != nil {
		pw, _ := u.User.Password()
		secrets = append(secrets, u.User.String(), pw)
	}
	c.target, c.hidden, c.secrets = target, secrets, scrubber(secrets)
	if c.guard, err = cfg.guarding(); err != nil {
		return nil, err
	}
	c.transport = newTransport(cfg, secure, c.guard)
	if c.trusted = c.transport; c.guard != nil {
		c.trusted = newTransport(cfg, secure, nil)
	}
	return c, nil
}

// spelling returns the name of a header as it is written; see keyIdempotency.
func spelling(name string) string {
	name = http.CanonicalHeaderKey(name)
	if strings.EqualFold(name, "x-"+keyIdempotency) {
		return strings.ToLower(name)
	}
	return name
}

// newTransport makes a transport. With a guard, it connects to nothing else but what that allows, and to a proxy of the sink.
func newTransport(cfg *Config, secure *tls.Config, g *guard.Guard) *http.Transport {
	dialer := net.Dialer{Timeout: cfg.Timeout, KeepAlive: keepAlive}
	dial := dialer.DialContext
	if g != nil && cfg.Proxy == "" {
		dial = g.Dialer(dialer)
	}
	return &http.Transport{
		Proxy:                  cfg.proxy(g != nil),
		OnProxyConnectResponse: onProxyAnswer,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newAging(conn, cfg.MaxConnAge), nil
		},
		TLSClientConfig:        secure.Clone(), // which the transport adds to
		TLSHandshakeTimeout:    cfg.Timeout,
		ForceAttemptHTTP2:      true, // which a custom TLSClientConfig would disable
		MaxIdleConns:           cfg.MaxInFlight,
		MaxIdleConnsPerHost:    cfg.MaxInFlight,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // the body is discarded
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
}

// request makes the job's request. It builds the request from a template (no http.NewRequest, a header map of the
// right size, one array for all values), so that a delivery makes few allocations. For a job whose metadata cannot be
// written as headers it returns the problem instead: the job can never be delivered, and net/http's own error would
// look like a failure to connect.
func (c *client) request(ctx context.Context, job *delivery.Job, t *trip) (req *http.Request, problem string) {
	contentType := job.ContentType
	if contentType == "" {
		contentType = defaultContentType
	}
	for _, h := range [...]struct{ name, value string }{
		{delivery.HeaderJobID, job.ID}, {delivery.HeaderCampaign, job.Campaign}, {delivery.HeaderContentType, contentType},
		{delivery.HeaderTraceParent, job.TraceParent},
	} {
		if !httpguts.ValidHeaderFieldValue(h.value) || len(h.value) > maxHeaderBytes {
			return nil, h.name + " cannot be sent as an HTTP header: it has control characters or is too long"
		}
	}
	// The destination gets the number of this attempt, from 1 on; job.Attempt counts the attempts before it.
	id := job.ID
	if step := c.config.Step; step != "" {
		id += ":" + step
	}
	if c.signer != nil {
		id = signature.ID(id)
	}
	values := [...]string{id, job.Campaign, strconv.Itoa(job.Attempt + 1), contentType, job.TraceParent}
	header := make(http.Header, c.headers(job, t))
	for _, f := range c.fixed {
		header[f.name] = f.values
	}
	v := values[:]
	header[keyWebhookID] = v[0:1:1]
	header[keyIdempotency] = v[0:1:1]
	header[keyCampaign] = v[1:2:2]
	header[keyAttempt] = v[2:3:3]
	if !c.typed {
		header[keyContentType] = v[3:4:4]
	}
	if job.TraceParent != "" {
		header[keyTraceParent] = v[4:5:5]
		if state := job.TraceState(); state != "" {
			header[keyTraceState] = []string{state}
		}
	}
	template := newRequest(c.method, c.target, header)
	t.header = header
	if problem = c.complete(&template, job, t); problem != "" {
		return nil, problem
	}
	return template.WithContext(httptrace.WithClientTrace(ctx, t.trace())), ""
}

// newRequest returns a request without a body.
func newRequest(method string, to *url.URL, header http.Header) http.Request {
	return http.Request{Method: method, URL: to, Host: to.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header}
}

// headers is how many headers the request has, about.
func (c *client) headers(job *delivery.Job, t *trip) (n int) {
	n = headersOfEveryJob + len(c.fixed)
	if c.form != nil {
		n += len(c.form.headers)
	}
	if c.signer != nil {
		n += len(signed)
	}
	if t.token() != nil {
		n++
	}
	if c.events != "" {
		n += len(job.Headers)
	}
	if job.TraceParent != "" {
		n += headersOfTrace
	}
	return n
}

// complete adds the body, and what the configuration makes of the job.
func (c *client) complete(req *http.Request, job *delivery.Job, t *trip) (problem string) {
	if c.form != nil {
		if problem = c.form.fill(req, job, t, time.Now()); problem != "" {
			return problem
		}
	}
	if c.events != "" {
		if problem = c.event(req, job, t); problem != "" {
			return problem
		}
	}
	if t.token() != nil {
		req.Header[keyAuthorization] = t.token().Header
	}
	t.addBody(req)
	if c.signer != nil {
		timestamp := signature.Timestamp(time.Now())
		req.Header[keyTimestamp] = []string{timestamp}
		req.Header[keySignature] = []string{c.signer.Sign(req.Header[keyWebhookID][0], timestamp, t.payload)}
	}
	if t.shown() != nil {
		c.show(req, t)
	}
	return ""
}
