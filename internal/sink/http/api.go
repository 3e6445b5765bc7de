package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/guard"
)

// API is how sinks of other kinds speak to a destination over HTTP: as a Sink does, a request is processed at most once,
// and what is known of one that got no answer is a result. It is safe for concurrent use and starts no goroutines but
// those of net/http, which end with Close.
type API struct {
	*client
	resent *atomic.Uint64
}

// APIOptions configure an API.
type APIOptions struct {
	URL         string // https:// or http://, and a host; "" if each request has its own
	Version     string // of pacer, for User-Agent
	MaxInFlight int
	Timeout     time.Duration // of a call
	MaxConnAge  time.Duration // 0 for as long as a connection works
	TLS         *tls.Config
	Secrets     []string       // never in a detail
	Resent      *atomic.Uint64 // counts the requests that were written once more
	// Guard says where requests with a URL of their own may go; required for these.
	Guard *guard.Guard
	// Proxy is a proxy of the sink; "" for that of the environment, and for none if there is a Guard.
	Proxy string
	// Connections, if set, are how many connections of HTTP/2 there may be, which then keep to the destination's limits.
	Connections int
}

// NewAPI makes an API. It opens no connection. An error is about the URL.
func NewAPI(o APIOptions) (*API, error) {
	target, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	cfg := &Config{MaxInFlight: o.MaxInFlight, Timeout: o.Timeout, MaxConnAge: o.MaxConnAge, Proxy: o.Proxy}
	c := &client{config: cfg, target: target, where: target.Host, timeout: o.Timeout, secrets: scrubber(o.Secrets), guard: o.Guard}
	c.transport = newTransport(cfg, o.TLS, o.Guard)
	if c.trusted = c.transport; c.guard != nil {
		c.reach = byJob
	}
	c.fixed = []field{{keyUserAgent, []string{"pacer/" + o.Version}}}
	if o.Connections > 0 {
		address := target.Host
		if target.Port() == "" {
			address = net.JoinHostPort(target.Hostname(), "443")
		}
		c.transport.IdleConnTimeout = 0 // they last, idle or not, for MaxConnAge
		c.pool = newPool(c.transport, target.Scheme, address, o.Connections, o.Resent)
	}
	return &API{client: c, resent: o.Resent}, nil
}

// Request is a request of an API.
type Request struct {
	Path   string      // from / on
	URL    *url.URL    // in place of the API's, and of Path; nil for these
	Header http.Header // not used afterwards
	Body   []byte
	// Most, if set, is how much of the answer's body is read, in bytes, instead of 64 KiB.
	Most int64
	// Retires, if set, reports whether an answer takes its connection out of use, where the API has a number of them.
	Retires func(Answer) bool
	// Shown, if set, gets the request and its answer as text.
	Shown *base.Exchange
}

// Answer is an answer to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the first 64 KiB, or Most, of what came until the timeout: it says what became of the request
	Whole  bool   // that was all of it
}

// Post sends a request and returns the answer. If there is none, result is what is known, and otherwise nil.
func (a *API) Post(ctx context.Context, r Request) (answer Answer, result *delivery.Result) {
	c := a.client
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	t := &trip{payload: r.Body, cancel: cancel, resent: a.resent, header: r.Header}
	defer t.end()
	if r.URL != nil {
		var refused *delivery.Result
		if c, refused = c.at(r.URL); refused != nil {
			return Answer{}, refused
		}
	}
	target := *c.target
	if r.URL == nil {
		target.Path = r.Path
	}
	for _, f := range c.fixed {
		r.Header[f.name] = f.values
	}
	req := newRequest(http.MethodPost, &target, r.Header)
	t.addBody(&req)
	if r.Shown != nil {
		t.extra = &extra{shown: r.Shown}
		c.show(&req, t)
	}
	under := limited
	if c.pool == nil {
		under = httptrace.WithClientTrace(limited, t.trace())
	}
	resp, none := c.exchange(ctx, limited, req.WithContext(under), t)
	if none != nil {
		return Answer{}, none
	}
	answer = readAnswer(resp, cmp.Or(r.Most, maxAnswerBody))
	_ = resp.Body.Close()
	if r.Shown != nil {
		r.Shown.Answer = c.public(r.Header, answerText(resp, answer.Body))
	}
	if t.release != nil {
		t.release(r.Retires != nil && r.Retires(answer))
	}
	// When a deadline of the caller's has come, what was read by then counts: it may say that the request was taken.
	if !answer.Whole && errors.Is(ctx.Err(), context.Canceled) {
		res := c.interrupted()
		return Answer{}, &res
	}
	return answer, nil
}

// Ask sends a request and returns the result that classify makes of the answer, or what is known without one.
func (a *API) Ask(ctx context.Context, r Request, classify func(a Answer, now time.Time) delivery.Result) delivery.Result {
	answer, none := a.Post(ctx, r)
	if none != nil {
		return *none
	}
	res := classify(answer, time.Now())
	if res.Class != delivery.Delivered {
		where := a.Where()
		if r.URL != nil {
			where = r.URL.Host
		}
		res.Detail = a.Scrub(res.Detail + " from " + where)
	}
	if res.Provider != nil {
		res.Provider.Code = a.Scrub(res.Provider.Code)
	}
	return res
}

// readAnswer reads the body of an answer, within its bounds.
func readAnswer(resp *http.Response, most int64) Answer {
	answer := Answer{Status: resp.StatusCode, Header: resp.Header}
	var err error
	answer.Body, err = io.ReadAll(io.LimitReader(resp.Body, most+1))
	if answer.Whole = err == nil && int64(len(answer.Body)) <= most; !answer.Whole {
		answer.Body = answer.Body[:min(int64(len(answer.Body)), most)]
	}
	return answer
}

// at returns the client for a URL, and if the guard refuses that, what this means for the job.
func (c *client) at(u *url.URL) (*client, *delivery.Result) {
	if c.guard == nil {
		return nil, &delivery.Result{Class: delivery.Permanent, Detail: "a URL of its own, and no guard"}
	}
	if detail, refused := guard.Refused(c.guard.URL(u)); refused {
		return nil, &delivery.Result{Class: delivery.Permanent, Detail: detail}
	}
	next := *c
	next.target, next.where = u, u.Host
	return &next, nil
}

// Scrub removes every secret from a detail.
func (a *API) Scrub(detail string) string { return a.scrub(detail) }

// Wait returns how long an answer asks to wait; 0 if it does not say.
func (a Answer) Wait(now time.Time) time.Duration { return waitOf(a.Header, now) }

// ByStatus returns the class of an answer whose body says nothing of its own: as that of a Sink, but that every other 4xx is
// about the settings.
func (a Answer) ByStatus(now time.Time) delivery.Result {
	res := delivery.Result{Class: delivery.Misconfigured, Status: a.Status}
	switch {
	case a.Status >= 200 && a.Status < 300:
		res.Class = delivery.Delivered
	case a.Status == http.StatusTooManyRequests:
		res.Class, res.RetryAfter = delivery.Throttled, a.Wait(now)
	case a.Status >= 500 || a.Status == http.StatusRequestTimeout || a.Status == http.StatusTooEarly:
		res.Class, res.By = delivery.Temporary, answerer(a.Status)
		if res.RetryAfter, _ = retryAfter(a.Header, now); res.RetryAfter > 0 && a.Status == http.StatusServiceUnavailable {
			res.Class, res.By = delivery.Throttled, delivery.ByUnknown
		}
	}
	return res
}

// Refusal completes the result for an answer other than success: by its status, and by the code in it, "" for none.
func (a Answer) Refusal(res delivery.Result, code string) delivery.Result {
	res.Detail = strings.TrimSpace("HTTP " + strconv.Itoa(a.Status) + " " + code)
	if code != "" {
		res.Provider = &delivery.Provider{Code: code}
	}
	return res
}
