// Package http is the sink that POSTs jobs to a URL: the payload unchanged, the metadata in headers.
package http

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/rule"
)

const (
	maxAnswerHeader = 64 << 10               // bytes of the answer's header; a longer one is an error
	maxAnswerBody   = 64 << 10               // bytes of the answer's body that are read
	maxAnswerTime   = 100 * time.Millisecond // for which the body is read, so that the connection can be used again
)

// Sink POSTs each job and classifies the answer (see classify), or what is known if there is none (see unanswered). It
// is safe for concurrent use and starts no goroutines but those of net/http, which end with Close.
//
// A request is processed at most once: redirects are not followed, and a request is written once more, on another
// connection, only if the destination has certainly not processed it (see trip). Retrying is up to the pacer, since
// every attempt takes a slot and a second copy would be a duplicate at the receiver.
type Sink struct {
	base.Service[*client] // replaced when a file that the configuration names changes
	config                *Config
	endpoints             endpoints
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) { return NewLike(nil, c, host) }

// NewLike makes a Sink that uses the access token of another one with the same credentials.
func NewLike(like *Sink, c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c}
	d := base.Dialect[*client]{Secrets: c.Secrets, Build: s.build, Attempt: func(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
		if shown == nil {
			return s.attempt(ctx, job, nil)
		}
		return s.attempt(ctx, job, &extra{shown: shown})
	}}
	if like != nil {
		s.Tokens = like.Tokens
	} else if c.OAuth2.TokenURL != "" {
		d.Fetch = s.fetchToken
	}
	if host.Endpoints != nil {
		d.Work = func(ctx context.Context) {
			retry.Every(ctx, base.RereadEvery, func(time.Time) { s.endpoints.forget(host.Endpoints) })
		}
	}
	return s, s.Open(host, d)
}

// Ask is Deliver for a sink that makes several requests for one job, this one among them: see is called with the answer, if
// there is one that was read whole. The exchange is noted in shown, unless that is nil.
func (s *Sink) Ask(ctx context.Context, job *delivery.Job, see func(*rule.Answer), shown *base.Exchange) delivery.Result {
	return s.attempt(ctx, job, &extra{see: see, shown: shown})
}

// attempt is Deliver, with what few requests have.
func (s *Sink) attempt(ctx context.Context, job *delivery.Job, more *extra) delivery.Result {
	c := s.Now()
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	t := &trip{payload: job.Payload, cancel: cancel, resent: &s.Repeats, extra: more}
	if c.reach == byTable {
		var res *delivery.Result
		if c, res = s.endpoint(c, job); res != nil {
			return *res
		}
	}
	if s.Tokens != nil {
		return s.deliverWithToken(ctx, limited, c, job, t)
	}
	return c.deliver(ctx, limited, job, t)
}

// deliver sends the job. The context of the request, limited, ends before that of the caller.
func (c *client) deliver(ctx, limited context.Context, job *delivery.Job, t *trip) delivery.Result {
	c, problem := c.forJob(job)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	req, problem := c.request(limited, job, t)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	defer t.end()
	resp, none := c.exchange(ctx, limited, req, t)
	if none != nil {
		return *none
	}
	if t.shown() != nil {
		defer c.watch(resp, t)()
	}
	if c.rules != nil {
		return c.scope(c.gone(c.resultOf(ctx, resp, t)))
	}
	res := c.classify(resp, time.Now())
	finish(resp, t.cancel)
	return c.scope(c.gone(res))
}

// exchange sends a request. Without an answer, none is what is known.
func (c *client) exchange(ctx, limited context.Context, req *http.Request, t *trip) (resp *http.Response, none *delivery.Result) {
	resp, err := c.send(req, t)
	if err == nil {
		return resp, nil
	}
	// The caller's context is checked first, because limited is done too if it has ended, and a call that pacer
	// itself cancelled says nothing about the destination.
	res := c.interrupted()
	if ctx.Err() == nil {
		res = c.unanswered(err, errors.Is(limited.Err(), context.DeadlineExceeded), t)
	}
	return nil, &res
}

func (c *client) interrupted() delivery.Result {
	return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before " + c.where + " answered"}
}

// send writes the request, to another connection as long as it gets one that has been closed already.
func (c *client) send(req *http.Request, t *trip) (resp *http.Response, err error) {
	if c.pool != nil {
		var inDoubt bool
		resp, t.release, inDoubt, err = c.pool.do(req)
		t.written.Store(inDoubt)
		return resp, err
	}
	for {
		resp, err := c.transport.RoundTrip(req)
		if err == nil || !t.reused || !t.closedIdle(err) || req.Context().Err() != nil {
			return resp, err
		}
		req = t.anew(req)
	}
}

// finish reads the rest of the answer, so that the connection can be used again, up to a bound on its size and on the
// time it takes; with more, the connection or stream is closed. The result is known already, so an error here changes
// nothing.
func finish(resp *http.Response, cancel context.CancelFunc) {
	if resp.Body != http.NoBody && resp.ContentLength <= maxAnswerBody {
		enough := time.AfterFunc(maxAnswerTime, cancel)
		_, _ = io.CopyN(io.Discard, resp.Body, maxAnswerBody+1)
		enough.Stop()
	}
	_ = resp.Body.Close()
}

// Where is the destination's host and port.
func (c *client) Where() string { return c.where }

// Close closes idle connections. Those in use are closed once they are idle.
func (c *client) Close() {
	c.transport.CloseIdleConnections()
	c.trusted.CloseIdleConnections()
	if c.pool != nil {
		c.pool.close()
	}
}
