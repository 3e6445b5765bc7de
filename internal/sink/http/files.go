package http

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// Open makes the clients of configurations with their secrets as they are now, and of the files that they name. Their connections are the same,
// as the first configuration says.
func Open(r *access.Reader, o httpcall.Options, configs ...*Config) []*Client {
	clients := make([]*Client, len(configs))
	for i, cfg := range configs {
		current := cfg.read(r.Of(cfg.Secrets))
		m, p := current.compile()
		if len(p) > 0 {
			r.Fail(errors.New(p[0]))
			return clients
		}
		var hidden []string
		clients[i], hidden = newClient(current, m)
		o.Secrets = append(o.Secrets, hidden...)
	}
	c := clients[0].config
	o.URL, o.Guard, o.TLS = clients[0].target.String(), clients[0].guard, r.TLS("", c.Certificates)
	o.MaxInFlight, o.Timeout, o.MaxConnAge, o.Proxy = c.MaxInFlight, c.Timeout, c.MaxConnAge, c.Proxy
	shared, _ := httpcall.New(o) // an error is about the URLs, which compile has looked at
	for _, c := range clients {
		c.Client = shared
	}
	return clients
}

// read returns the configuration with its secrets as they are now.
func (c Config) read(r *access.Reader) *Config {
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
	return &c
}
