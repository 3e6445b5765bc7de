// Package fcm is the sink that sends jobs as messages of Firebase Cloud Messaging, by its HTTP v1 API, and of services that
// have taken over that API.
package fcm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/token"
)

// checkMessage has the service validate a message.
const checkMessage = `{"validate_only":true,"message":{"topic":"pacer-check"}}`

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*httpcall.Client
	key    *httpcall.Account // nil: the bearer does not change
	bearer string
	path   string // of a send
}

// New makes a sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*httpcall.Sink[parts], error) {
	return NewLike(c, host, &codes, checkMessage)
}

// NewLike makes a sink for another service with the same API, by what its codes mean and a message that delivers nothing.
func NewLike(c *Config, host base.Host, codes *httpcall.Codes, check string) (*httpcall.Sink[parts], error) {
	d := httpcall.Dialect[parts]{
		Limits: c.Limits, Build: c.build, Refuses: refusesToken, Blame: blame,
		Classify: func(a httpcall.Answer, now time.Time) delivery.Result { return classify(a, codes, now) },
		Request: func(p parts, job *delivery.Job, _ time.Time) (httpcall.Request, error) {
			body, err := bodyOf(job.Payload, c.ValidateOnly)
			return p.request(body), err
		},
		Check: func(p parts) (httpcall.Request, error) { return p.request([]byte(check)), nil },
		After: func(_ *delivery.Job, res *delivery.Result) {
			if refusesToken(res) {
				res.Detail += ": the token is not accepted"
			}
		},
	}
	if c.KeyFile != "" {
		d.Fetch = fetch
	}
	return httpcall.NewSink(host, d)
}

func (c *Config) build(r *access.Reader, o httpcall.Options) (p parts) {
	project := c.Project
	if c.KeyFile != "" {
		p.key = httpcall.ReadAccount(r, c.KeyFile, "client_email", "token_uri")
		project = cmp.Or(project, p.key.Fields["project_id"])
		if u, err := url.Parse(p.key.Fields["token_uri"]); err != nil || u.Scheme != "https" || u.Host == "" {
			r.Fail(fmt.Errorf("service_account_file: %s has a token_uri that is no https URL", c.KeyFile))
		}
	} else {
		p.bearer = r.Secret("bearer", c.Bearer)
		o.Secrets = []string{p.bearer}
	}
	if !projectPattern.MatchString(project) {
		r.Fail(fmt.Errorf("project: required, since %s names none", c.KeyFile))
	}
	p.path = "/v1/projects/" + url.PathEscape(project) + "/messages:send"
	p.Client = c.Client(r, o)
	return p
}

// request is one that sends the body.
func (p parts) request(body []byte) httpcall.Request {
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if p.bearer != "" {
		header["Authorization"] = []string{"Bearer " + p.bearer}
	}
	return httpcall.Request{Path: p.path, Header: header, Body: body}
}

// fetch gets a token for an assertion.
func fetch(ctx context.Context, p parts) (token.Token, error) {
	a := p.key.Fields
	assertion, err := p.key.Sign(jwt.RS256, a["private_key_id"], map[string]any{
		"iss": a["client_email"], "scope": "https://www.googleapis.com/auth/firebase.messaging", "aud": a["token_uri"],
	})
	if err != nil {
		return token.Token{}, err
	}
	return p.FetchToken(ctx, httpcall.TokenRequest{
		URL: a["token_uri"], Form: url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion.Value}},
		Key: "service_account_file", Hint: "the key is not accepted",
	})
}

// refusesToken reports whether an answer is about the token that the request was sent with.
func refusesToken(res *delivery.Result) bool {
	return res.Status == http.StatusUnauthorized && res.Class == delivery.Misconfigured
}

func blame(p parts, res *delivery.Result) string {
	switch {
	case refusesToken(res) && p.key == nil:
		return "bearer"
	case refusesToken(res):
		return "service_account_file"
	case res.Class == delivery.Misconfigured || res.Class == delivery.Temporary || res.Class == delivery.Permanent && res.Status == http.StatusNotFound:
		return "project"
	}
	return "" // the service knows the project and the token
}

// maxMessage bounds a message, in bytes: what is delivered to a device has at most 4,096, and settings of platforms come
// on top of it.
const maxMessage = 32 << 10

// bodyOf returns the body of the request for a payload: the message itself, or {"message": …}. The error is about the job,
// and repeats nothing of it.
func bodyOf(payload []byte, validateOnly bool) ([]byte, error) {
	if len(payload) > maxMessage {
		return nil, fmt.Errorf("the message is longer than %d bytes", maxMessage)
	}
	var outer map[string]json.RawMessage
	if json.Unmarshal(payload, &outer) != nil || outer == nil {
		return nil, errors.New("the payload is no JSON object; it has to be a message of FCM")
	}
	message := payload
	if inner, ok := outer["message"]; ok {
		if len(outer) > 1 {
			return nil, errors.New("the payload has other keys beside message; leave them out")
		}
		message = inner
	}
	if message = bytes.TrimSpace(message); message[0] != '{' {
		return nil, errors.New("the payload is not a message of FCM, which is an object")
	}
	begin := `{"message":`
	if validateOnly {
		begin = `{"validate_only":true,"message":`
	}
	return slices.Concat([]byte(begin), message, []byte{'}'}), nil
}
