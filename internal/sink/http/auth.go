package http

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/token"
)

// Basic is a user and a password.
type Basic struct {
	Username string `yaml:"username"`
	Password string `yaml:"password" secret:"value"`
}

// OAuth2 says where to get access tokens: by the grant of client credentials.
type OAuth2 struct {
	TokenURL     string   `yaml:"token_url" secret:"url"` // "" for none
	ClientID     string   `yaml:"client_id"`
	ClientSecret string   `yaml:"client_secret" secret:"value"`
	Auth         string   `yaml:"auth"` // where the client's credentials are: header or body
	Scopes       []string `yaml:"scopes"`
	Audience     string   `yaml:"audience"`
}

// Where a token request has the client's credentials.
const (
	authHeader = "header"
	authBody   = "body"
)

// authorization returns the value of the header Authorization that is the same for all jobs, "" for none, and the secrets in it.
func (c *Config) authorization() (value string, secrets []string) {
	switch {
	case c.Bearer != "":
		return "Bearer " + c.Bearer, []string{c.Bearer}
	case c.Basic != Basic{}:
		encoded := base64.StdEncoding.EncodeToString([]byte(c.Basic.Username + ":" + c.Basic.Password))
		return "Basic " + encoded, []string{encoded, c.Basic.Password}
	}
	return "", nil
}

// authProblems returns what is wrong with what the sink says of itself.
func (c *Config) authProblems() (p []string) {
	ways := c.ways()
	if len(ways) > 1 && (ways[0] != "user and password in url" || ways[1] != "headers.authorization") { // the header counts, as it did
		p = append(p, ways[len(ways)-1]+": there is "+ways[0]+" as well; use one of them")
	}
	if c.Basic != (Basic{}) && (c.Basic.Username == "" || strings.Contains(c.Basic.Username, ":")) {
		p = append(p, "basic.username: required, without a colon")
	}
	if !validValue(c.Bearer) || len(c.Bearer) > maxHeaderBytes {
		p = append(p, "bearer: not a token; use one line")
	}
	return append(p, c.OAuth2.problems()...)
}

// ways returns the settings that say who the sink is.
func (c *Config) ways() (ways []string) {
	for _, way := range []struct {
		key  string
		used bool
	}{
		{"user and password in url", userIn(c.URL)}, {"basic", c.Basic != Basic{}}, {"bearer", c.Bearer != ""}, {"oauth2", c.OAuth2.used()},
		{"headers.authorization", slices.ContainsFunc(names(c.Headers), func(name string) bool { return http.CanonicalHeaderKey(name) == keyAuthorization })},
	} {
		if way.used {
			ways = append(ways, way.key)
		}
	}
	return ways
}

func names(headers map[string]string) (list []string) {
	for name := range headers {
		list = append(list, name)
	}
	return list
}

func userIn(address string) bool {
	if render.IsTemplate(address) {
		u, _ := splitURL(address)
		address = actions.ReplaceAllString(u.base, "x")
	}
	u, err := url.Parse(address)
	return err == nil && u.User != nil
}

func (o *OAuth2) used() bool {
	return o.TokenURL != "" || o.ClientID != "" || o.ClientSecret != "" || o.Audience != "" || len(o.Scopes) > 0
}

func (o *OAuth2) problems() (p []string) {
	if o.Auth != "" && o.Auth != authHeader && o.Auth != authBody {
		p = append(p, "oauth2.auth: not a place; use header or body")
	}
	if !o.used() {
		return p
	}
	if why := urlProblem(o.TokenURL); why != "" {
		p = append(p, "oauth2.token_url: "+why)
	} else if userIn(o.TokenURL) {
		p = append(p, "oauth2.token_url: has a user; use oauth2.client_id and oauth2.client_secret")
	}
	if o.ClientID == "" {
		p = append(p, "oauth2.client_id: required")
	}
	if o.ClientSecret == "" {
		p = append(p, "oauth2.client_secret: required")
	}
	return p
}

// deliverWithToken sends the job with an access token. Without one, nothing is sent, and the job is not to blame.
func (s *Sink) deliverWithToken(ctx, limited context.Context, c *client, job *delivery.Job, t *trip) delivery.Result {
	held := s.tokens.Get(limited)
	switch {
	case held == nil && ctx.Err() != nil:
		return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before there was an access token"}
	case held == nil:
		return delivery.Result{Class: delivery.Unreachable, Detail: "no access token within " + c.timeout.String()}
	case held.Err != nil:
		return noToken(held.Err)
	case !held.Valid(time.Now()):
		return delivery.Result{Class: delivery.Unreachable, Detail: "the access token has expired, and there is no other yet"}
	}
	t.extra = &extra{token: held, shown: t.shown()}
	res := c.deliver(ctx, limited, job, t)
	if res.Status == http.StatusUnauthorized && res.Class != delivery.Delivered {
		s.tokens.Refused(held)
	}
	if res.Class != delivery.Delivered {
		res.Detail = strings.ReplaceAll(res.Detail, held.Value, "***")
	}
	if p := res.Provider; p != nil {
		p.Code, p.MessageID = strings.ReplaceAll(p.Code, held.Value, "***"), strings.ReplaceAll(p.MessageID, held.Value, "***")
	}
	return res
}

// tokenError is why there is no access token.
type tokenError struct {
	class  delivery.ResultClass
	status int
	detail string
}

func (e *tokenError) Error() string { return "oauth2.token_url: " + e.detail }

func noToken(err error) delivery.Result {
	var e *tokenError
	if errors.As(err, &e) {
		return delivery.Result{Class: e.class, Status: e.status, Detail: e.Error()}
	}
	return delivery.Result{Class: delivery.Unreachable, Detail: "no access token: " + err.Error()}
}

// maxTokenAnswer bounds the answer of a token endpoint, in bytes.
const maxTokenAnswer = 64 << 10

// fetchToken gets an access token.
func (s *Sink) fetchToken(ctx context.Context) (token.Token, error) {
	c := s.client.Load()
	o := &c.from.config.OAuth2
	req, err := o.request(ctx)
	if err != nil {
		return token.Token{}, &tokenError{class: delivery.Misconfigured, detail: "not a URL"}
	}
	req.Header.Set(keyUserAgent, "pacer/"+s.options.Version)
	at := *c
	at.where = req.URL.Host
	resp, err := c.trusted.RoundTrip(req)
	if err != nil {
		e := &tokenError{class: delivery.Unreachable, detail: c.scrub(at.describe(err, false))}
		if wrongSettings(err) {
			e.class = delivery.Misconfigured
		}
		return token.Token{}, e
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	if err != nil {
		return token.Token{}, &tokenError{class: delivery.Unreachable, detail: c.scrub(at.describe(err, false))}
	}
	return readToken(resp.StatusCode, body, at.where)
}

// request makes the request for a token.
func (o *OAuth2) request(ctx context.Context) (*http.Request, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(o.Scopes) > 0 {
		form.Set("scope", strings.Join(o.Scopes, " "))
	}
	if o.Audience != "" {
		form.Set("audience", o.Audience)
	}
	if o.Auth == authBody {
		form.Set("client_id", o.ClientID)
		form.Set("client_secret", o.ClientSecret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set(keyContentType, "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if o.Auth != authBody {
		req.SetBasicAuth(url.QueryEscape(o.ClientID), url.QueryEscape(o.ClientSecret))
	}
	return req, nil
}

// readToken reads the answer of a token endpoint. Of one that refuses, only the code of the error is told.
func readToken(status int, body []byte, where string) (token.Token, error) {
	var answer struct {
		AccessToken string      `json:"access_token"`
		TokenType   string      `json:"token_type"`
		ExpiresIn   json.Number `json:"expires_in"` // some send it as text
		Error       string      `json:"error"`
	}
	err := json.Unmarshal(body, &answer)
	detail := fmt.Sprintf("HTTP %d %s from %s", status, http.StatusText(status), where)
	e := &tokenError{class: delivery.Misconfigured, status: status, detail: detail}
	switch {
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		e.class = delivery.Unreachable
		return token.Token{}, e
	case status < 200 || status > 299:
		if code := answer.Error; code != "" && len(code) <= 40 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == "" {
			e.detail += ", " + code
		}
		e.detail += ": check oauth2.client_id and oauth2.client_secret"
		return token.Token{}, e
	case err != nil || answer.AccessToken == "" || !validValue(answer.AccessToken) || len(answer.AccessToken) > maxHeaderBytes:
		e.detail += " has no access token"
		return token.Token{}, e
	case answer.TokenType != "" && !strings.EqualFold(answer.TokenType, "bearer"):
		e.detail += " is a token of another type than Bearer"
		return token.Token{}, e
	}
	seconds, _ := strconv.ParseFloat(answer.ExpiresIn.String(), 64)
	return token.Token{Value: answer.AccessToken, Life: time.Duration(min(max(0, seconds), 1e9) * float64(time.Second))}, nil
}
