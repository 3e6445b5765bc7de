package http

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// build makes the client of the configuration with its secrets as they are now, and of the files that it names.
func (s *Sink) build(r *access.Reader) *client {
	cfg := *s.config
	cfg.Headers, cfg.Sign.Secrets = maps.Clone(cfg.Headers), slices.Clone(cfg.Sign.Secrets)
	at := cfg.secrets()
	for _, key := range slices.Sorted(maps.Keys(cfg.Sources)) {
		value := r.Secret(key, "")
		if name, isHeader := strings.CutPrefix(key, "headers."); isHeader {
			cfg.Headers[name] = value
		} else if to := at[key]; to != nil {
			*to = value
		}
	}
	m, p := cfg.compile()
	if len(p) > 0 {
		r.Fail(errors.New(p[0]))
		return nil
	}
	c, err := newClient(&cfg, m, r.TLS("", cfg.Certificates), httpcall.Options{Version: s.Version, Resent: &s.Repeats})
	if err != nil {
		r.Fail(err)
	}
	return c
}

// secrets returns where the secrets are, but for headers, by key.
func (c *Config) secrets() map[string]*string {
	at := map[string]*string{
		"url": &c.URL, "body": &c.Body, "proxy": &c.Proxy, "basic.password": &c.Basic.Password, "bearer": &c.Bearer,
		"oauth2.token_url": &c.OAuth2.TokenURL, "oauth2.client_secret": &c.OAuth2.ClientSecret,
	}
	for i := range c.Sign.Secrets {
		at["sign.secrets."+strconv.Itoa(i)] = &c.Sign.Secrets[i]
	}
	return at
}
