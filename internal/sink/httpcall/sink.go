package httpcall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/token"
)

// Dialect is what a kind of sink says of its service, which takes each job as one request. P is what is made of the configuration, and of
// the files and secrets that it names.
type Dialect[P Parts] struct {
	Limits base.Limits // whose secrets are read again, and whose timeout bounds a call with its token
	// Build makes the parts, with a client of the options and of what the configuration adds to them. It reports errors to the Reader.
	// Each error begins with the key.
	Build func(*access.Reader, Options) P
	// Fetch gets an access token, and Refuses reports whether a result is about it; nil if there are none.
	Fetch   func(ctx context.Context, p P) (token.Token, error)
	Refuses func(*delivery.Result) bool
	// Request makes the request of a job. An access token is added to it. An error that is no token.Error is about the job, and repeats
	// nothing of it.
	Request func(p P, job *delivery.Job, now time.Time) (Request, error)
	// Classify returns the result for an answer. After, unless it is nil, completes all results; the job is nil in a check.
	Classify func(a Answer, now time.Time) delivery.Result
	After    func(job *delivery.Job, res *delivery.Result)
	// Check makes a request that delivers nothing, and Blame returns the setting that a result for it is about; "" if jobs could be sent.
	Check func(p P) (Request, error)
	Blame func(p P, res *delivery.Result) string
}

// Parts are what is made of a configuration: a Client, and more.
type Parts interface {
	base.Parts
	Ask(ctx context.Context, r Request, classify func(a Answer, now time.Time) delivery.Result) delivery.Result
}

// Sink sends each job as a request, and classifies the answer. Until there is the token that requests are sent with, Deliver waits, at
// most for the configured timeout.
//
// A request that was sent and got no answer may have been processed. The next attempt sends it again: most services have no idempotency
// key.
type Sink[P Parts] struct {
	base.Service[P]
	dialect Dialect[P]
}

// NewSink makes a Sink. It reads the files that the configuration names and opens no connection.
func NewSink[P Parts](host base.Host, d Dialect[P]) (*Sink[P], error) {
	s := &Sink[P]{dialect: d}
	of := base.Dialect[P]{Secrets: d.Limits.Secrets, Attempt: s.attempt, Fetch: d.Fetch}
	of.Build = func(r *access.Reader) P {
		return d.Build(r, Options{Version: s.Version, MaxInFlight: d.Limits.MaxInFlight, Timeout: d.Limits.Timeout, Resent: &s.Repeats})
	}
	return s, s.Open(host, of)
}

func (s *Sink[P]) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	p := s.Now()
	r, err := s.dialect.Request(p, job, time.Now())
	if err != nil {
		return unsent(err)
	}
	r.Shown = shown
	return s.Tokens.Call(ctx, s.dialect.Limits.Timeout, func(ctx context.Context, held *token.Current) delivery.Result {
		if held != nil {
			r.set(keyAuthorization, held.Header)
		}
		return s.ask(ctx, p, job, r)
	}, s.dialect.Refuses)
}

// unsent returns the result of a job when its request cannot be made.
func unsent(err error) delivery.Result {
	res := delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	if e, ok := errors.AsType[*token.Error](err); ok {
		res.Class = e.Class
	}
	return res
}

func (s *Sink[P]) ask(ctx context.Context, p P, job *delivery.Job, r Request) delivery.Result {
	res := p.Ask(ctx, r, s.dialect.Classify)
	if s.dialect.After != nil {
		s.dialect.After(job, &res)
	}
	return res
}

// Check gets a token, if requests need one, and sends a request that delivers nothing.
func (s *Sink[P]) Check(ctx context.Context) error {
	p := s.Now()
	r, err := s.dialect.Check(p)
	if err != nil {
		return err
	}
	if fresh, err := s.FetchToken(ctx); err != nil {
		return err
	} else if fresh.Value != "" {
		r.set(keyAuthorization, []string{"Bearer " + fresh.Value})
	}
	res := s.ask(ctx, p, nil, r)
	key := s.dialect.Blame(p, &res)
	switch {
	case res.Status == 0 && res.Class == delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", res.Detail)
	case res.Status == 0:
		return fmt.Errorf("url: %s", res.Detail)
	case key != "":
		return fmt.Errorf("%s: %s", key, res.Detail)
	}
	return nil
}
