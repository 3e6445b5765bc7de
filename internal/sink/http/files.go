package http

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// build makes the client of the configuration with its secrets as they are now, and of the files that it names.
func (s *Sink) build(r *access.Reader) *client {
	c := *s.config
	c.Headers, c.Sign.Secrets = maps.Clone(c.Headers), slices.Clone(c.Sign.Secrets)
	for _, secret := range []struct {
		key string
		at  *string
	}{
		{"url", &c.URL}, {"body", &c.Body}, {"proxy", &c.Proxy}, {"basic.password", &c.Basic.Password}, {"bearer", &c.Bearer},
		{"oauth2.token_url", &c.OAuth2.TokenURL}, {"oauth2.client_secret", &c.OAuth2.ClientSecret},
	} {
		*secret.at = r.Secret(secret.key, *secret.at)
	}
	for i, value := range c.Sign.Secrets {
		c.Sign.Secrets[i] = r.Secret("sign.secrets."+strconv.Itoa(i), value)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		c.Headers[name] = r.Secret("headers."+name, c.Headers[name])
	}
	m, p := c.compile()
	if len(p) > 0 {
		r.Fail(errors.New(p[0]))
		return nil
	}
	return newClient(&c, m, r.TLS("", c.Certificates), httpcall.Options{Version: s.Version, Resent: s.Repeats})
}
