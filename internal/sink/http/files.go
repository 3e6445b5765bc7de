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
	for _, key := range slices.Sorted(maps.Keys(cfg.Sources)) {
		value := r.Secret(key, "")
		if name, isHeader := strings.CutPrefix(key, "headers."); isHeader {
			cfg.Headers[name] = value
		} else if at := cfg.secret(key); at != nil {
			*at = value
		}
	}
	if p := cfg.Problems(); len(p) > 0 {
		r.Fail(errors.New(p[0]))
		return nil
	}
	c, err := newClient(&cfg, r.TLS("", cfg.Certificates), httpcall.Options{Version: s.Version, Resent: &s.Repeats})
	if err != nil {
		r.Fail(err)
	}
	return c
}

// secret returns where a secret other than a header is; nil if there is none of that key.
func (c *Config) secret(key string) *string {
	switch key {
	case "url":
		return &c.URL
	case "body":
		return &c.Body
	case "proxy":
		return &c.Proxy
	case "basic.password":
		return &c.Basic.Password
	case "bearer":
		return &c.Bearer
	case "oauth2.client_secret":
		return &c.OAuth2.ClientSecret
	}
	if i, isItem := strings.CutPrefix(key, "sign.secrets."); isItem {
		if n, err := strconv.Atoi(i); err == nil && n >= 0 && n < len(c.Sign.Secrets) {
			return &c.Sign.Secrets[n]
		}
	}
	return nil
}
