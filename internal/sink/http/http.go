// Package http is the sink that POSTs jobs to a URL: the payload unchanged, the metadata in headers.
package http

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/rule"
	"github.com/pacer/pacer/internal/sink/token"
)

const (
	maxAnswerHeader = 64 << 10               // bytes of the answer's header; a longer one is an error
	maxAnswerBody   = 64 << 10               // bytes of the answer's body that are read
	maxAnswerTime   = 100 * time.Millisecond // for which the body is read, so that the connection can be used again
)

// Options configure a Sink.
type Options struct {
	Config  Config // valid: Config.Problems found none
	Version string // of pacer, for User-Agent
	Logger  *slog.Logger
	// Like, if set, is a sink with the same credentials, whose access token this one uses.
	Like *Sink
	// Endpoints looks destinations up, nil for one that is not known; required if the configuration says that there are any.
	Endpoints func(id string) *delivery.Destination
}

// Sink POSTs each job and classifies the answer (see classify), or what is known if there is none (see unanswered). It
// is safe for concurrent use and starts no goroutines but those of net/http, which end with Close.
//
// A request is processed at most once: redirects are not followed, and a request is written once more, on another
// connection, only if the destination has certainly not processed it (see trip). Retrying is up to the pacer, since
// every attempt takes a slot and a second copy would be a duplicate at the receiver.
type Sink struct {
	options   Options
	client    atomic.Pointer[client] // replaced when a file that the configuration names changes
	resent    atomic.Uint64
	reading   retry.Outage // of these files
	endpoints endpoints
	tokens    *token.Source // nil: requests need no access token
}

// New makes a Sink. It reads the files that the configuration names and opens no connection.
func New(opt Options) (*Sink, error) {
	if p := opt.Config.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	s := &Sink{options: opt}
	f, err := opt.Config.read()
	if err != nil {
		return nil, err
	}
	c, err := newClient(f, opt.Version)
	if err != nil {
		return nil, err
	}
	s.client.Store(c)
	if opt.Like != nil {
		s.tokens = opt.Like.tokens
	} else if opt.Config.OAuth2.TokenURL != "" {
		s.tokens = token.New(token.Options{Fetch: s.fetchToken, Logger: opt.Logger, Destination: c.where})
	}
	return s, nil
}

// Deliver POSTs the job and waits for the answer, at most for the configured timeout.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	return s.attempt(ctx, job, nil)
}

// Ask is Deliver for a sink that makes several requests for one job, this one among them: see is called with the answer, if
// there is one that was read whole. The exchange is noted in shown, unless that is nil.
func (s *Sink) Ask(ctx context.Context, job *delivery.Job, see func(*rule.Answer), shown *Exchange) delivery.Result {
	return s.attempt(ctx, job, &extra{see: see, shown: shown})
}

// attempt is Deliver, with what few requests have.
func (s *Sink) attempt(ctx context.Context, job *delivery.Job, more *extra) delivery.Result {
	c := s.client.Load()
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	t := &trip{payload: job.Payload, cancel: cancel, resent: &s.resent, extra: more}
	if c.reach == byTable {
		var res *delivery.Result
		if c, res = s.endpoint(c, job); res != nil {
			return *res
		}
	}
	if s.tokens != nil {
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
	resp, err := c.send(req, t)
	if err != nil {
		// The caller's context is checked first, because limited is done too if it has ended, and a call that pacer
		// itself cancelled says nothing about the destination.
		if ctx.Err() != nil {
			return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before " + c.where + " answered"}
		}
		return c.unanswered(err, errors.Is(limited.Err(), context.DeadlineExceeded), t)
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

// send writes the request, to another connection as long as it gets one that has been closed already.
func (c *client) send(req *http.Request, t *trip) (*http.Response, error) {
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

func (c *client) closeIdle() {
	c.transport.CloseIdleConnections()
	c.trusted.CloseIdleConnections()
}

// Resent returns how many requests were written once more (see trip).
func (s *Sink) Resent() uint64 { return s.resent.Load() }

// Close closes idle connections.
func (s *Sink) Close() error {
	s.client.Load().closeIdle()
	return nil
}

// tlsConfig is what the sink asks of every TLS connection.
func tlsConfig() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
