// Package http is the sink that POSTs jobs to a URL: the payload unchanged, the metadata in headers.
package http

import (
	"context"
	"net/http"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/rule"
	"github.com/pacer/pacer/internal/sink/token"
)

// Sink POSTs each job and classifies the answer (see classify). It is safe for concurrent use.
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
		return s.Ask(ctx, job, nil, shown)
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
	c := s.Now()
	if c.reach == byTable {
		var res *delivery.Result
		if c, res = s.endpoint(c, job); res != nil {
			return *res
		}
	}
	if s.Tokens == nil {
		return c.deliver(ctx, job, nil, see, shown)
	}
	return s.WithToken(ctx, s.config.Timeout, func(ctx context.Context, held *token.Current) delivery.Result {
		return c.deliver(ctx, job, held, see, shown)
	}, func(res *delivery.Result) bool {
		return res.Status == http.StatusUnauthorized && res.Class != delivery.Delivered
	})
}

// deliver sends the job.
func (c *client) deliver(ctx context.Context, job *delivery.Job, held *token.Current, see func(*rule.Answer), shown *base.Exchange) delivery.Result {
	r, problem := c.request(job, held)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	r.Secrets, r.Hides, r.Shown = c.secrets, c.hides, shown
	r.Drain = c.rules == nil || !c.rules.NeedsBody()
	answer, none := c.Post(ctx, r)
	if none != nil {
		return *none
	}
	return c.Scoped(c.gone(answer.Keep(c.resultOf(answer, see))))
}
