// Package hms is the sink that sends jobs by Push Kit of Huawei Mobile Services.
package hms

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/token"
)

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*httpcall.Client
	config *Config
	key    *httpcall.Account // nil: access tokens are given for a secret
	secret string
	tokens string // where access tokens are given
	path   string // of a send
}

// New makes a sink of a valid configuration: each job's payload is a message for one token. It reads the files that the configuration
// names and opens no connection.
func New(c *Config, host base.Host) (*httpcall.Sink[parts], error) {
	return httpcall.NewSink(host, httpcall.Dialect[parts]{
		Limits: c.Limits, Build: c.build, Fetch: fetch, Refuses: refusesToken, Classify: classify, Blame: blame,
		Request: func(p parts, job *delivery.Job, _ time.Time) (httpcall.Request, error) {
			return p.request(job.Payload), problemOf(job.Payload)
		},
		Check: func(p parts) (httpcall.Request, error) {
			return p.request([]byte(checkMessages[c.Version == "v3"])), nil
		},
	})
}

func (c *Config) build(r *access.Reader, o httpcall.Options) (p parts) {
	project := c.Project
	if p.config, p.tokens = c, r.Secret("token_url", c.TokenURL); c.KeyFile != "" {
		p.key = httpcall.ReadAccount(r, c.KeyFile, "key_id", "sub_account")
		project = cmp.Or(project, p.key.Fields["project_id"])
	} else {
		p.secret = r.Secret("client_secret", c.ClientSecret)
		o.Secrets = []string{p.secret}
	}
	if !projectPattern.MatchString(project) {
		r.Fail(fmt.Errorf("project: required, since %s names none", c.KeyFile))
	}
	p.path = "/" + c.Version + "/" + project + "/messages:send"
	p.Client = c.Client(r, o)
	return p
}

// request is one that sends the body.
func (p parts) request(body []byte) httpcall.Request {
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if p.config.PushType != "" {
		header["Push-Type"] = []string{p.config.PushType}
	}
	return httpcall.Request{Path: p.path, Header: header, Body: body}
}

// fetch gets a token: one that is signed with the key of the service account, or an access token for the app's secret.
func fetch(ctx context.Context, p parts) (token.Token, error) {
	if p.key != nil {
		return p.key.Sign(jwt.PS256, p.key.Fields["key_id"], map[string]any{"iss": p.key.Fields["sub_account"], "aud": p.tokens})
	}
	return p.FetchToken(ctx, httpcall.TokenRequest{
		URL: p.tokens, Key: "token_url", Hint: "check client_id and client_secret",
		Form: url.Values{"grant_type": {"client_credentials"}, "client_id": {p.config.ClientID}, "client_secret": {p.secret}},
	})
}

// maxPayload bounds a request, in bytes: a message has at most 4,096 of them, and settings come on top of it.
const maxPayload = 32 << 10

// problemOf says why a payload is no request for one token; nil if it is one. It repeats nothing of it.
func problemOf(payload []byte) error {
	if len(payload) > maxPayload {
		return fmt.Errorf("the payload is longer than %d bytes", maxPayload)
	}
	type target struct {
		Token []string `json:"token"`
	}
	var m struct {
		Target  target `json:"target"`  // of v3
		Message target `json:"message"` // of v1 and v2
	}
	if json.Unmarshal(payload, &m) != nil {
		return errors.New("the payload is no request of Push Kit: a JSON object with a list of one token in target, or with v1 and v2 in message")
	}
	if n := len(m.Target.Token) + len(m.Message.Token); n != 1 {
		return fmt.Errorf("the payload has %d tokens; a job needs exactly one", n)
	}
	return nil
}

// checkMessages are requests for a token that is none, by version: the service looks at the credentials first.
var checkMessages = map[bool]string{
	true:  `{"payload":{"notification":{"category":"WORK","title":"pacer","body":"check","clickAction":{"actionType":0}}},"target":{"token":["pacer-check"]},"pushOptions":{"testMessage":true}}`,
	false: `{"validate_only":true,"message":{"data":"{}","token":["pacer-check"]}}`,
}

func blame(p parts, res *delivery.Result) string {
	switch {
	case refusesToken(res) && p.key != nil:
		return "service_account_file"
	case refusesToken(res):
		return "client_id"
	case res.Class == delivery.Misconfigured && res.Scope == delivery.ScopeSink || res.Class == delivery.Temporary:
		return "project"
	}
	return ""
}
