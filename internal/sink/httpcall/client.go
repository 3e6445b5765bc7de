// Package httpcall makes the calls of sinks over HTTP: each request is processed at most once, and what is known of one that got no answer
// is a result.
package httpcall

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/guard"
)

const (
	maxAnswerHeader = 64 << 10               // bytes of the answer's header; a longer one is an error
	maxAnswerBody   = 64 << 10               // bytes of the answer's body that are read
	longAnswer      = 1 << 20                // bytes of the answer's body, besides twice the request's: one that has more needs a place
	maxLong         = 4                      // places of one client
	maxDrain        = 100 * time.Millisecond // for which a body is read that nobody looks at, so that the connection can be used again

	idleTimeout = 30 * time.Second
	keepAlive   = 15 * time.Second
	pingAfter   = 5 * time.Second // HTTP/2: an idle connection is pinged after this long
)

// Headers, in the canonical form of net/http.
const (
	keyAuthorization = "Authorization"
	keyConnection    = "Connection"
	keyContentType   = "Content-Type"
	keyUserAgent     = "User-Agent"
)

// Client makes calls. It is safe for concurrent use and starts no goroutines but those of net/http, which end with Close.
//
// A request is processed at most once: redirects are not followed, and a request is written once more, on another connection, only if
// the destination has certainly not processed it (see trip). Retrying is up to the pacer, since every attempt takes a slot and a second
// copy would be a duplicate at the receiver.
type Client struct {
	Options   Options
	Transport *http.Transport
	Trusted   *http.Transport // for an address that the configuration names; the same unless there is a guard
	target    *url.URL
	agent     []string
	pool      *pool // nil: the connections are those of the transport
	secrets   *strings.Replacer
	places    chan struct{} // for long answers: what all calls together may hold is bounded
}

// Options configure a Client.
type Options struct {
	URL         string // https:// or http://, and a host; "" if each request has its own
	Version     string // of pacer, for User-Agent
	MaxInFlight int
	Timeout     time.Duration // of a call
	MaxConnAge  time.Duration // 0 for as long as a connection works, as those of Connections do
	TLS         *tls.Config
	Secrets     []string       // never in a result
	Resent      *atomic.Uint64 // counts the requests that were written once more
	// Guard says where requests may go, if their addresses come from jobs.
	Guard *guard.Guard
	// Proxy is a proxy of the sink; "" for that of the environment, and for none if there is a Guard.
	Proxy string
	// Connections, if set, are how many connections of HTTP/2 there may be, which then keep to the destination's limits.
	Connections int
}

// New makes a Client. It opens no connection. An error is about the URL, or that of the proxy.
func New(o Options) (*Client, error) {
	if why := URLProblem(o.URL); why != "" && o.URL != "" {
		return nil, errors.New(why)
	}
	if why := ProxyProblem(o.Proxy); why != "" {
		return nil, errors.New("of the proxy: " + why)
	}
	target, _ := url.Parse(o.URL) // which is one
	by, _ := url.Parse(o.Proxy)
	c := &Client{Options: o, target: target, agent: []string{"pacer/" + o.Version}, places: make(chan struct{}, maxLong)}
	c.secrets = Scrubber(append(CredentialsOf(by), o.Secrets...))
	c.Transport = c.transport(o.Guard)
	if c.Trusted = c.Transport; o.Guard != nil {
		c.Trusted = c.transport(nil)
	}
	if o.Connections > 0 {
		c.Transport.IdleConnTimeout = 0 // they last, idle or not
		c.pool = newPool(c.Transport, target.Scheme, at(target, target.Hostname()), o.Connections, o.Resent)
	}
	return c, nil
}

// transport makes a transport. With a guard, it connects to nothing else but what that allows, and to a proxy of the sink.
func (c *Client) transport(g *guard.Guard) *http.Transport {
	o := &c.Options
	dialer := net.Dialer{Timeout: o.Timeout, KeepAlive: keepAlive}
	dial := dialer.DialContext
	if g != nil && o.Proxy == "" {
		dial = g.Dialer(dialer)
	}
	return &http.Transport{
		Proxy:                  o.proxy(g != nil),
		OnProxyConnectResponse: onProxyAnswer,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newAging(conn, o.MaxConnAge), nil
		},
		TLSClientConfig:        o.TLS.Clone(), // which the transport adds to
		TLSHandshakeTimeout:    o.Timeout,
		ForceAttemptHTTP2:      true, // which a custom TLSClientConfig would disable
		MaxIdleConns:           o.MaxInFlight,
		MaxIdleConnsPerHost:    o.MaxInFlight,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // the body is discarded
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
}

// Request is a request.
type Request struct {
	Method string      // "" for POST
	Path   string      // from / on, below that of the client's address
	URL    *url.URL    // in place of the client's, and of Path; nil for these
	Header http.Header // not used afterwards
	Body   []byte
	// Most, if set, is how much of the answer's body is read, in bytes, instead of 64 KiB. Of more than 1 MiB and twice the body
	// of the request, the rest is read once there is a place for it, which the answer has until the context of the call ends.
	Most int64
	// Drain says that the body of the answer is not needed: its status decides the result. Only the beginning of a failure's is read.
	Drain bool
	// Retires, if set, reports whether an answer takes its connection out of use, where the client has a number of them.
	Retires func(Answer) bool
	// Shown, if set, gets the request and its answer as text, after those of earlier calls.
	Shown *base.Exchange
	// Secrets, if set, replace what must not be in a result or be shown, besides the client's; Hides reports whether the value of a header
	// is one.
	Secrets *strings.Replacer
	Hides   func(header string) bool
}

// set sets a header.
func (r *Request) set(name string, value []string) {
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header[name] = value
}

// Answer is an answer to a request.
type Answer struct {
	Status int
	Header http.Header
	URL    *url.URL // that was asked
	Body   []byte   // the first 64 KiB, or Most, of what came until the timeout: it says what became of the request
	Whole  bool     // that was all of it
	Long   bool     // there was more than that
	trip   *trip    // that got it
}

// Post sends a request and returns the answer. If there is none, result is what is known, and otherwise nil.
func (c *Client) Post(ctx context.Context, r Request) (answer Answer, result *delivery.Result) {
	limited, cancel := context.WithTimeout(ctx, c.Options.Timeout)
	defer cancel()
	if r.URL == nil {
		own := *c.target
		if r.Path != "" {
			own.Path, own.RawPath = strings.TrimSuffix(own.Path, "/")+r.Path, strings.TrimSuffix(own.EscapedPath(), "/")+r.Path
		}
		r.URL = &own
	}
	t := &trip{client: c, Request: r, cancel: cancel}
	defer t.end()
	if g := c.Options.Guard; g != nil {
		if detail, refused := guard.Refused(g.URL(r.URL)); refused {
			return answer, &delivery.Result{Class: delivery.Permanent, Detail: detail}
		}
	}
	if r.Header[keyUserAgent] == nil {
		r.set(keyUserAgent, c.agent)
	}
	req := http.Request{
		Method: cmp.Or(r.Method, http.MethodPost), URL: r.URL, Host: r.URL.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.Header,
	}
	t.addBody(&req)
	t.show(&req)
	under := limited
	if c.pool == nil {
		under = httptrace.WithClientTrace(limited, t.trace())
	}
	resp, err := t.send(req.WithContext(under))
	if err != nil {
		// The caller's context is checked first, because limited is done too if it has ended, and a call that pacer
		// itself cancelled says nothing about the destination.
		res := t.interrupted()
		if !errors.Is(ctx.Err(), context.Canceled) {
			res = t.unanswered(err, errors.Is(limited.Err(), context.DeadlineExceeded))
			res.Detail = t.public(res.Detail)
		}
		return answer, &res
	}
	answer = t.read(ctx, limited, resp)
	if t.release != nil {
		t.release(r.Retires != nil && r.Retires(answer))
	}
	// When a deadline of the caller's has come, what was read by then counts: it may say that the request was taken.
	if !r.Drain && !answer.Whole && !answer.Long && errors.Is(ctx.Err(), context.Canceled) {
		res := t.interrupted()
		return Answer{}, &res
	}
	return answer, nil
}

// Ask sends a request and returns the result that classify makes of the answer, or what is known without one.
func (c *Client) Ask(ctx context.Context, r Request, classify func(a Answer, now time.Time) delivery.Result) delivery.Result {
	answer, none := c.Post(ctx, r)
	if none != nil {
		return *none
	}
	res := classify(answer, time.Now())
	if res.Class != delivery.Delivered {
		res.Detail += " from " + answer.URL.Host
	}
	return answer.Keep(res)
}

// send writes the request, to another connection as long as it gets one that has been closed already.
func (t *trip) send(req *http.Request) (resp *http.Response, err error) {
	if p := t.client.pool; p != nil {
		var inDoubt bool
		resp, t.release, inDoubt, err = p.do(req)
		t.written.Store(inDoubt)
		return resp, err
	}
	for {
		resp, err := roundTrip(t.client.Transport, req)
		if err == nil || !t.reused || !closedIdle(err) || req.Context().Err() != nil {
			return resp, err
		}
		req = t.anew(req)
	}
}

// roundTrip makes a round trip. The body of a 101 would be the connection itself, whose reads no context ends.
func roundTrip(t *http.Transport, req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, err
}

// read reads the body of an answer, within its bounds, and ends the use of its connection. It reads a little of a body that is not
// needed, so that the connection can be used again. The result is known already, and an error there changes nothing.
func (t *trip) read(caller, limited context.Context, resp *http.Response) Answer {
	a := Answer{Status: resp.StatusCode, Header: resp.Header, URL: t.URL, trip: t}
	most := cmp.Or(t.Most, maxAnswerBody)
	switch {
	case !t.Drain || t.Shown != nil:
		if t.Drain {
			defer time.AfterFunc(maxDrain, t.cancel).Stop()
		}
		body := io.LimitReader(resp.Body, most+1)
		short := longAnswer + 2*int64(len(t.Body)) // what comes back of a job is bounded as jobs are
		text, err := io.ReadAll(io.LimitReader(body, short))
		if int64(len(text)) == short && err == nil {
			if err = t.client.place(caller, limited); err == nil {
				rest := bytes.NewBuffer(text)
				_, err = rest.ReadFrom(body)
				text = rest.Bytes()
			}
		}
		a.Body, a.Long = bytes.TrimPrefix(text[:min(int64(len(text)), most)], byteOrderMark), int64(len(text)) > most
		a.Whole = err == nil && !a.Long
	case resp.Body != http.NoBody:
		enough := time.AfterFunc(maxDrain, t.cancel)
		if resp.StatusCode >= http.StatusMultipleChoices {
			a.Body, _ = io.ReadAll(io.LimitReader(resp.Body, maxShown))
		}
		if resp.ContentLength <= most {
			_, _ = io.CopyN(io.Discard, resp.Body, most+1)
		}
		enough.Stop()
	}
	_ = resp.Body.Close()
	if t.Shown != nil {
		t.Shown.Answer = join(t.Shown.Answer, t.public(answerText(resp, a.Body)))
	}
	return a
}

// byteOrderMark may begin a body in UTF-8, and is no part of its text.
var byteOrderMark = []byte("\xef\xbb\xbf")

// place waits until one more answer may be long, which it is until its caller ends.
func (c *Client) place(caller, limited context.Context) error {
	select {
	case c.places <- struct{}{}:
		context.AfterFunc(caller, func() { <-c.places })
		return nil
	case <-limited.Done():
		return limited.Err()
	}
}

// Scoped has an answer be about the job's destination, where the client has more than one.
func (c *Client) Scoped(res delivery.Result) delivery.Result {
	if c.Options.Guard == nil || res.Scope != delivery.ScopeSink {
		return res
	}
	switch res.Class {
	case delivery.Throttled, delivery.Unreachable, delivery.Misconfigured:
		res.Scope = delivery.ScopeDestination
	}
	return res
}

// Scrub removes the configured secrets from a detail. Errors of net/http are not known to contain any; a destination's Location may.
func (c *Client) Scrub(detail string) string { return c.secrets.Replace(detail) }

// Where is the destination's host and port.
func (c *Client) Where() string { return c.target.Host }

// Close closes idle connections. Those in use are closed once they are idle.
func (c *Client) Close() {
	c.Transport.CloseIdleConnections()
	c.Trusted.CloseIdleConnections()
	if c.pool != nil {
		c.pool.close()
	}
}
