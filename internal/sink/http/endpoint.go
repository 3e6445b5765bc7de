package http

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/signature"
)

// maxEndpoints is of how many rows a sink keeps what it has made of them.
const maxEndpoints = 10_000

// newEndpoints returns room for what a sink makes of rows, by their ids.
func newEndpoints() *lru.Cache[string, *endpoint] {
	made, _ := lru.New[string, *endpoint](maxEndpoints) // an error is about the size
	return made
}

// endpoint is what is made of a row. It never changes. A row that is changed is another row.
type endpoint struct {
	row    *delivery.Destination
	common *Client // of the sink
	client *Client // nil if the row cannot be used
	fault  string  // why
	refers bool    // to secrets that may change
	readAt time.Time
}

// made returns what is made of a row for the sink, anew if the sink, the row or the secrets may have changed.
func (s *Sink) made(common *Client, row *delivery.Destination, now time.Time) *endpoint {
	known, _ := s.endpoints.Get(row.ID)
	same := known != nil && known.row == row && known.common == common
	if same && (!known.refers || now.Sub(known.readAt) < base.RereadEvery) {
		return known
	}
	next := newEndpoint(common, row, now)
	if next.client == nil && same && known.client != nil {
		again := *known // with the secrets of before, as one that is rotated may be missing for a moment
		again.readAt = now
		next = &again
	}
	s.endpoints.Add(row.ID, next)
	return next
}

// newEndpoint makes the client of a row: that of the sink, with the address, the headers and the secrets of the row.
func newEndpoint(common *Client, row *delivery.Destination, now time.Time) *endpoint {
	e := &endpoint{row: row, common: common, readAt: now}
	e.refers = len(row.Secrets) > 0 || slices.ContainsFunc(row.Headers, func(h delivery.DestinationHeader) bool { return isReference(h.Value) })
	var err error
	if e.client, err = common.to(row); err != nil {
		e.fault = "destination " + row.ID + ": " + err.Error()
	}
	return e
}

// to returns the client for a row. An error begins with the column: the settings are wrong, and no job is to blame.
func (c *Client) to(row *delivery.Destination) (*Client, error) {
	cfg := c.config
	target, err := url.Parse(row.URL)
	if err != nil || target.Host == "" || target.Fragment != "" {
		return nil, errors.New("url: not a URL")
	}
	next := *c
	next.target, next.fixed = target, slices.Clone(c.fixed)
	hidden := httpcall.QueryOf(target)
	for _, h := range row.Headers {
		value, err := resolve(cfg.SecretsDir, row.ID, h.Value)
		if err != nil {
			return nil, fmt.Errorf("headers.%s: %w", h.Name, err)
		}
		if why := headerProblem(h.Name, value, len(row.Secrets) > 0 || c.signer != nil); why != "" {
			return nil, errors.New(why)
		}
		if isReference(h.Value) {
			hidden = append(append(hidden, strings.Fields(value)...), value)
		}
		next.setFixed(h.Name, value)
	}
	if len(row.Secrets) > 0 {
		secrets := make([]string, len(row.Secrets))
		for i, reference := range row.Secrets {
			if secrets[i], err = resolve(cfg.SecretsDir, row.ID, reference); err != nil {
				return nil, fmt.Errorf("secrets: %w", err)
			}
		}
		if next.signer, err = signature.New(secrets); err != nil {
			return nil, fmt.Errorf("secrets: %w", err)
		}
		hidden = append(hidden, secrets...)
	}
	next.secrets = httpcall.Scrubber(hidden)
	return &next, nil
}

// endpoint returns the client for the destination that a job names. Without one, the result says what is wrong, and that no job
// is to blame: jobs whose destination is not known, or disabled, do not get here but for a moment.
func (s *Sink) endpoint(common *Client, job *delivery.Job) (*Client, *delivery.Result) {
	wait := func(class delivery.ResultClass, detail string) (*Client, *delivery.Result) {
		return nil, &delivery.Result{Class: class, Scope: delivery.ScopeDestination, Detail: detail}
	}
	var row *delivery.Destination
	if s.Endpoints != nil {
		row = s.Endpoints(job.Destination)
	}
	switch {
	case row == nil && job.Destination == "": // only commands send such a job
		return wait(delivery.Unreachable, "the job names no destination; pacer sink test SINK --destination ID sends one to the destination ID")
	case row == nil:
		return wait(delivery.Unreachable, "there is no destination "+job.Destination)
	case row.Disabled():
		return wait(delivery.Unreachable, "the destination is disabled: "+row.DisabledReason)
	}
	e := s.made(common, row, time.Now())
	if e.client == nil {
		return wait(delivery.Misconfigured, e.fault)
	}
	return e.client, nil
}
