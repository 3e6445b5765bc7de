package http

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/signature"
	"github.com/pacer/pacer/internal/sink/token"
)

const defaultContentType = "application/octet-stream"

// Headers of a request, in the canonical form of net/http but for keyIdempotency. If a connection breaks before the answer, net/http may
// send a POST with an Idempotency-Key again on another one, even if it was written in full. None of pacer's counters would show this
// duplicate. In this spelling net/http does not detect the header; servers ignore case. X-Idempotency-Key is treated alike.
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
	headersOfEveryJob = 6
)

// Client is what is made of a configuration, and of the secrets and files that it names. It never changes.
type Client struct {
	*httpcall.Client
	compiled
	config  *Config // with the secrets as they are now
	reach   reach
	target  *url.URL          // without user and password
	fixed   []field           // sent with every request, in place of those of templates; read-only
	secrets *strings.Replacer // replaces what must not appear in a detail, beside the secrets of the sink; nil but for a row
}

// field is a header of every request. A slice of them is cheaper to iterate over than a map.
type field struct {
	name   string
	values []string
}

// newClient makes a client of a valid configuration, without connections, and returns the secrets in it.
func newClient(cfg *Config, m compiled) (c *Client, hidden []string) {
	address, _ := cfg.sample()
	target, _ := url.Parse(address) // which is one
	c = &Client{config: cfg, compiled: m, reach: cfg.reach(), target: target}
	hidden = append(slices.Clone(cfg.Sign.Secrets), cfg.OAuth2.ClientSecret)
	if c.form != nil {
		for _, text := range c.form.texts() {
			hidden = append(hidden, strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" =&", c) })...)
		}
	}
	hidden = append(hidden, httpcall.QueryOf(target)...)
	if cfg.FromFile("url") { // such as that of a hook whose path lets whoever knows it send
		hidden = append(hidden, target.EscapedPath(), target.Path)
	}
	if own := httpcall.CredentialsOf(target); own != nil {
		if !cfg.sets(keyAuthorization) { // a header counts, which may be a template
			c.setFixed(keyAuthorization, "Basic "+own[0])
		}
		hidden = append(hidden, own...)
		target.User = nil
	}
	if value, parts := cfg.authorization(); value != "" {
		c.setFixed(keyAuthorization, value)
		hidden = append(hidden, parts...)
	}
	for name, value := range cfg.Headers {
		if !cfg.isTemplate("headers."+name, value) {
			c.setFixed(name, value)
			hidden = append(append(hidden, strings.Fields(value)...), value)
		}
	}
	return c, hidden
}

// setFixed sets a header that is sent with every request.
func (c *Client) setFixed(name, value string) {
	name = spelling(name)
	f := field{name, []string{value}}
	if i := slices.IndexFunc(c.fixed, func(o field) bool { return o.name == name }); i >= 0 {
		c.fixed[i] = f
	} else {
		c.fixed = append(c.fixed, f)
	}
}

// spelling returns the name of a header as it is written; see keyIdempotency.
func spelling(name string) string {
	name = http.CanonicalHeaderKey(name)
	if strings.EqualFold(name, "x-"+keyIdempotency) {
		return strings.ToLower(name)
	}
	return name
}

// request makes the job's request, with one array for all values of its headers, so that a delivery makes few allocations. For a job
// whose metadata cannot be written as headers it returns an error: the job can never be delivered, and net/http's own error would look like
// a failure to connect. That error, and all others, are about the job, now and ever.
func (c *Client) request(job *delivery.Job, held *token.Current) (r httpcall.Request, err error) {
	contentType := cmp.Or(job.ContentType, defaultContentType)
	if !httpguts.ValidHeaderFieldValue(contentType) || len(contentType) > httpcall.MaxHeaderBytes {
		return r, errors.New("content-type cannot be sent as an HTTP header: it has control characters or is too long")
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
	size := headersOfEveryJob + len(c.fixed) // about: a map of up to eight takes half of the memory of a larger one
	if c.form != nil {
		size += len(c.form.headers)
	}
	if c.signer != nil {
		size += len(signed)
	}
	if c.config.CloudEvents != "" {
		size += len(job.Headers)
	}
	header := make(http.Header, size)
	v := values[:]
	header[keyWebhookID] = v[0:1:1]
	header[keyIdempotency] = v[0:1:1]
	header[keyCampaign] = v[1:2:2]
	header[keyAttempt] = v[2:3:3]
	header[keyContentType] = v[3:4:4]
	if job.TraceParent != "" {
		header[keyTraceParent] = v[4:5:5]
		if state := job.TraceState(); state != "" {
			header[keyTraceState] = []string{state}
		}
	}
	r = httpcall.Request{Method: cmp.Or(c.config.Method, http.MethodPost), URL: c.target, Header: header, Body: job.Payload}
	if c.form != nil {
		if err := c.form.fill(&r, job, time.Now()); err != nil {
			return r, err
		}
	}
	for _, f := range c.fixed {
		header[f.name] = f.values
	}
	if c.config.CloudEvents != "" {
		if err := c.event(&r, job); err != nil {
			return r, err
		}
	}
	if held != nil {
		header[keyAuthorization] = held.Header
	}
	if r.Method == http.MethodGet {
		r.Body = nil
	}
	if c.signer != nil {
		timestamp := signature.Timestamp(time.Now())
		header[keyTimestamp] = []string{timestamp}
		header[keySignature] = []string{c.signer.Sign(header[keyWebhookID][0], timestamp, r.Body)}
	}
	return r, nil
}

// hides reports whether the value of a header is that of a setting.
func (c *Client) hides(name string) bool {
	if name == keyUserAgent || name == keyContentType {
		return false
	}
	return slices.ContainsFunc(c.fixed, func(f field) bool { return f.name == name }) ||
		c.form != nil && slices.ContainsFunc(c.form.headers, func(h formHeader) bool { return h.name == name })
}
