// Package http is the sink that POSTs jobs to a URL: the payload unchanged, the metadata in headers.
package http

import (
	"context"
	"net/http"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/rule"
	"github.com/pacer/pacer/internal/sink/token"
)

// Sink POSTs each job and classifies the answer (see classify). It is safe for concurrent use.
type Sink struct {
	base.Service[*Client] // replaced when a file that the configuration names changes
	config                *Config
	endpoints             *lru.Cache[string, *endpoint] // of rows that it has sent to lately
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c, endpoints: newEndpoints()}
	d := base.Dialect[*Client]{Secrets: c.Secrets, Attempt: s.attempt, Build: func(r *access.Reader) *Client {
		return Open(r, httpcall.Options{Version: s.Version, Resent: &s.Repeats}, c)[0]
	}}
	if c.OAuth2.TokenURL != "" {
		d.Fetch = func(ctx context.Context, c *Client) (token.Token, error) { return c.AccessToken(ctx) }
	}
	return s, s.Open(host, d)
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	c := s.Now()
	if c.reach == byTable {
		var none *delivery.Result
		if c, none = s.endpoint(c, job); none != nil {
			return *none
		}
	}
	res, _ := c.Ask(ctx, s.Tokens, job, nil, shown)
	return res
}

// Ask sends the request of a job, with an access token if there are some. Where it is one of several requests for the job, expressions see in
// vars what the others have found out. It also returns the answer, nil if there is none that was read whole. The exchange is noted in shown,
// unless that is nil.
func (c *Client) Ask(
	ctx context.Context, tokens *token.Source, job *delivery.Job, vars map[string]any, shown *base.Exchange,
) (res delivery.Result, answer *rule.Answer) {
	res = tokens.Call(ctx, c.config.Timeout, func(ctx context.Context, held *token.Current) delivery.Result {
		res, answer = c.deliver(ctx, job, held, vars, shown)
		return res
	}, func(res *delivery.Result) bool {
		return res.Status == http.StatusUnauthorized && res.Class != delivery.Delivered
	})
	return res, answer
}

// deliver sends the job.
func (c *Client) deliver(
	ctx context.Context, job *delivery.Job, held *token.Current, vars map[string]any, shown *base.Exchange,
) (res delivery.Result, answer *rule.Answer) {
	r, err := c.request(job, held)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}, nil
	}
	r.Secrets, r.Hides, r.Shown = c.secrets, c.hides, shown
	r.Drain = c.rules == nil || !c.rules.NeedsBody()
	got, none := c.Post(ctx, r)
	if none != nil {
		return *none, nil
	}
	res, answer = c.resultOf(got, vars)
	return c.Scoped(got.Keep(res)), answer
}
