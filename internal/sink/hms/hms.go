// Package hms is the sink that sends jobs by Push Kit of Huawei Mobile Services.
package hms

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/token"
)

// Sink sends each job's payload as a message for one token, and classifies the answer (see classify). Until there is the token
// that messages are sent with, Deliver waits, at most for the configured timeout.
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt.
type Sink struct {
	base.Service[parts]
	config *Config
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*sinkhttp.API
	key    *serviceAccount // nil: access tokens are given for a secret
	secret string
	path   string // of a send
}

// serviceAccount is the key of a service account.
type serviceAccount struct {
	Project string `json:"project_id"`
	KeyID   string `json:"key_id"`
	Key     string `json:"private_key"`
	Account string `json:"sub_account"`

	private *rsa.PrivateKey
}

// readServiceAccount reads a key file. An error does not repeat its content.
func readServiceAccount(content []byte) (*serviceAccount, error) {
	a := &serviceAccount{}
	if json.Unmarshal(content, a) != nil {
		return nil, errors.New("is not the JSON file of a service account's key")
	}
	if a.KeyID == "" || a.Account == "" {
		return nil, errors.New("has no key_id or no sub_account; use the JSON file of a service account's key")
	}
	var err error
	if a.private, err = jwt.RSA([]byte(a.Key)); err != nil {
		return nil, fmt.Errorf("has a private_key that %w", err)
	}
	return a, nil
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c}
	return s, s.Open(host, base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt, Fetch: s.fetch})
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := s.config
	project, secrets := c.Project, []string(nil)
	if c.KeyFile != "" {
		var err error
		if p.key, err = readServiceAccount(r.File("service_account_file", c.KeyFile)); err != nil {
			r.Fail(fmt.Errorf("service_account_file: %s %w", c.KeyFile, err))
			return p
		}
		project = cmp.Or(project, p.key.Project)
	} else {
		p.secret = r.Secret("client_secret", c.ClientSecret)
		secrets = append(secrets, p.secret)
	}
	if !projectPattern.MatchString(project) {
		r.Fail(fmt.Errorf("project: required, since %s names none", c.KeyFile))
		return p
	}
	p.path = "/" + c.Version + "/" + project + "/messages:send"
	p.API = c.API(r, sinkhttp.APIOptions{Version: s.Version, Secrets: secrets, Resent: &s.Repeats})
	return p
}

const (
	signedFor  = time.Hour
	clockSlack = 10 * time.Second
)

// fetch gets a token: one that it signs with the key of the service account, or an access token for the app's secret.
func (s *Sink) fetch(ctx context.Context) (token.Token, error) {
	p, c := s.Now(), s.config
	if p.key == nil {
		return p.FetchToken(ctx, sinkhttp.TokenRequest{
			URL: c.TokenURL, Key: "token_url", Hint: "check client_id and client_secret",
			Form: url.Values{"grant_type": {"client_credentials"}, "client_id": {c.ClientID}, "client_secret": {p.secret}},
		})
	}
	issued := time.Now().Add(-clockSlack)
	text, err := jwt.Sign(jwt.PS256, p.key.private, map[string]any{"typ": "JWT", "kid": p.key.KeyID}, map[string]any{
		"iss": p.key.Account, "aud": c.TokenURL, "iat": issued.Unix(), "exp": issued.Add(signedFor).Unix(),
	})
	if err != nil {
		return token.Token{}, &token.Error{Class: delivery.Misconfigured, Detail: "service_account_file: " + err.Error()}
	}
	return token.Token{Value: text, Life: signedFor - clockSlack}, nil
}

// maxPayload bounds a request, in bytes: a message has at most 4,096 of them, and settings come on top of it.
const maxPayload = 32 << 10

// problemOf says why a payload is no request for one token; "" if it is one. It repeats nothing of it.
func problemOf(payload []byte) string {
	if len(payload) > maxPayload {
		return fmt.Sprintf("the payload is longer than %d bytes", maxPayload)
	}
	type target struct {
		Token []string `json:"token"`
	}
	var m struct {
		Target  target `json:"target"`  // of v3
		Message target `json:"message"` // of v1 and v2
	}
	if json.Unmarshal(payload, &m) != nil {
		return "the payload is no request of Push Kit: a JSON object with a list of one token in target, or with v1 and v2 in message"
	}
	if n := len(m.Target.Token) + len(m.Message.Token); n != 1 {
		return fmt.Sprintf("the payload has %d tokens; a job needs exactly one", n)
	}
	return ""
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	if problem := problemOf(job.Payload); problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	return s.WithToken(ctx, s.config.Timeout, func(bearer string) delivery.Result {
		return s.send(ctx, bearer, sinkhttp.Request{Body: job.Payload, Shown: shown})
	}, refusesToken)
}

// send sends a request with the token.
func (s *Sink) send(ctx context.Context, bearer string, r sinkhttp.Request) delivery.Result {
	p := s.Now()
	r.Path = p.path
	r.Header = http.Header{"Authorization": {"Bearer " + bearer}, "Content-Type": {"application/json; charset=utf-8"}}
	if s.config.PushType != "" {
		r.Header["Push-Type"] = []string{s.config.PushType}
	}
	return p.Ask(ctx, r, classify)
}

// checkMessages are requests for a token that is none, by version: the service looks at the credentials first.
var checkMessages = map[bool]string{
	true:  `{"payload":{"notification":{"category":"WORK","title":"pacer","body":"check","clickAction":{"actionType":0}}},"target":{"token":["pacer-check"]},"pushOptions":{"testMessage":true}}`,
	false: `{"validate_only":true,"message":{"data":"{}","token":["pacer-check"]}}`,
}

// Check gets a token, and sends a message for no device.
func (s *Sink) Check(ctx context.Context) error {
	defer s.Now().Close()
	fresh, err := s.fetch(ctx)
	if err != nil {
		return err
	}
	res := s.send(ctx, fresh.Value, sinkhttp.Request{Body: []byte(checkMessages[s.config.Version == "v3"])})
	switch {
	case res.Class == delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", res.Detail)
	case refusesToken(&res) && s.Now().key != nil:
		return fmt.Errorf("service_account_file: %s", res.Detail)
	case refusesToken(&res):
		return fmt.Errorf("client_id: %s", res.Detail)
	case res.Class == delivery.Misconfigured && res.Scope == delivery.ScopeSink || res.Class == delivery.Temporary:
		return fmt.Errorf("project: %s", res.Detail)
	}
	return nil
}
