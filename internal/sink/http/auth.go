package http

import (
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
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
	Auth         string   `yaml:"auth" oneof:"header, body" zero:""` // where the client's credentials are: header or body
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

// authProblems adds what is wrong with what the sink says of itself.
func (c *Config) authProblems(p *base.Problems) {
	ways := c.ways()
	if len(ways) > 1 && (ways[0] != "user and password in url" || ways[1] != "headers.authorization") { // the header counts, as it did
		p.Add("%s: there is %s as well; use one of them", ways[len(ways)-1], ways[0])
	}
	if c.Basic != (Basic{}) && (c.Basic.Username == "" || strings.Contains(c.Basic.Username, ":")) {
		p.Add("basic.username: required, without a colon")
	}
	if !httpguts.ValidHeaderFieldValue(c.Bearer) || len(c.Bearer) > httpcall.MaxHeaderBytes {
		p.Add("bearer: not a token; use one line")
	}
	if c.OAuth2.used() {
		c.OAuth2.problems(p)
	}
}

// ways returns the settings that say who the sink is.
func (c *Config) ways() (ways []string) {
	address, _ := c.sample()
	for _, way := range []struct {
		key  string
		used bool
	}{
		{"user and password in url", httpcall.HasUser(address)}, {"basic", c.Basic != Basic{}}, {"bearer", c.Bearer != ""},
		{"oauth2", c.OAuth2.used()}, {"headers.authorization", c.sets(keyAuthorization)},
	} {
		if way.used {
			ways = append(ways, way.key)
		}
	}
	return ways
}

// sets reports whether a header is among those of every request.
func (c *Config) sets(canonical string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(c.Headers)), func(name string) bool { return http.CanonicalHeaderKey(name) == canonical })
}

func (o *OAuth2) used() bool {
	return o.TokenURL != "" || o.ClientID != "" || o.ClientSecret != "" || o.Audience != "" || len(o.Scopes) > 0
}

func (o *OAuth2) problems(p *base.Problems) {
	if why := httpcall.URLProblem(o.TokenURL); why != "" {
		p.Add("oauth2.token_url: %s", why)
	} else if httpcall.HasUser(o.TokenURL) {
		p.Add("oauth2.token_url: has a user; use oauth2.client_id and oauth2.client_secret")
	}
	if o.ClientID == "" {
		p.Add("oauth2.client_id: required")
	}
	if o.ClientSecret == "" {
		p.Add("oauth2.client_secret: required")
	}
}

// AccessToken gets an access token.
func (c *Client) AccessToken(ctx context.Context) (token.Token, error) {
	o := &c.config.OAuth2
	r := httpcall.TokenRequest{
		URL: o.TokenURL, Form: url.Values{"grant_type": {"client_credentials"}},
		Key: "oauth2.token_url", Hint: "check oauth2.client_id and oauth2.client_secret",
	}
	if len(o.Scopes) > 0 {
		r.Form.Set("scope", strings.Join(o.Scopes, " "))
	}
	if o.Audience != "" {
		r.Form.Set("audience", o.Audience)
	}
	if o.Auth == authBody {
		r.Form.Set("client_id", o.ClientID)
		r.Form.Set("client_secret", o.ClientSecret)
	} else {
		r.User = url.UserPassword(url.QueryEscape(o.ClientID), url.QueryEscape(o.ClientSecret))
	}
	return c.FetchToken(ctx, r)
}
