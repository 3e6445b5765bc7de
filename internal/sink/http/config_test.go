package http

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// settings are the default ones, sent to a fixed address.
func settings() *Config {
	c := Default()
	c.URL = "https://example.com/"
	return c
}

func TestProblems(t *testing.T) {
	header := func(name, value string) func(*Config) {
		return func(c *Config) { c.Headers = map[string]string{name: value} }
	}
	token := func(o OAuth2) func(*Config) { return func(c *Config) { c.OAuth2 = o } }
	sinktest.Problems(t, settings, map[string]func(*Config){
		"url: required;": func(c *Config) { c.URL = "" },
		"url: must begin with http:// or https://":  func(c *Config) { c.URL = "localhost:9000" },
		"url: must begin with http:// or":           func(c *Config) { c.URL = "ftp://a/b" },
		"url: names no host":                        func(c *Config) { c.URL = "http:///x" },
		"url: not a URL":                            func(c *Config) { c.URL = "http://u:hunter22@a:b/" },
		"url: its port":                             func(c *Config) { c.URL = "http://a:99999/" },
		"url: has a #fragment":                      func(c *Config) { c.URL = "http://a/#x" },
		"cert_file: goes together with key_file":    func(c *Config) { c.CertFile = "x" },
		"headers.a b: not a header name":            header("a b", "x"),
		"headers.a: not a header value":             header("a", "x\ny"),
		"headers.idempotency-key: pacer sets":       header("idempotency-key", "x"),
		"headers.pacer-x: pacer sets":               header("pacer-x", "x"),
		"headers.x-A: is there twice, also as X-a":  func(c *Config) { c.Headers = map[string]string{"X-a": "{{ .ID }}", "x-A": "x"} },
		"proxy: not a URL":                          func(c *Config) { c.Proxy = "proxy" },
		"proxy: must begin with":                    func(c *Config) { c.Proxy = "ftp://u:hunter22@proxy" },
		"guard: is for addresses that come from":    func(c *Config) { c.Guard.Ports = []int{8443} },
		"rules.rejected: not an expression: unknow": func(c *Config) { c.Rules = map[string]string{"rejected": "statsu == 404"} },

		// Who the sink is. That the header goes before the address is as it always was.
		"": func(c *Config) {
			c.URL, c.Headers = "https://u:hunter22@example.com/", map[string]string{"authorization": "opensesame"}
		},
		"bearer: there is basic as well":                   func(c *Config) { c.Basic, c.Bearer = Basic{"a", "hunter22"}, "opensesame" },
		"basic: there is user and password in url as well": func(c *Config) { c.URL, c.Basic = "https://u:p@h/", Basic{"a", "hunter22"} },
		"headers.authorization: there is bearer as well":   func(c *Config) { c.Bearer, c.Headers = "a", map[string]string{"authorization": "b"} },
		"basic.username: required":                         func(c *Config) { c.Basic.Password = "hunter22" },
		"bearer: not a token":                              func(c *Config) { c.Bearer = "hunter22\n" },
		"oauth2.token_url: required":                       token(OAuth2{ClientID: "a", ClientSecret: "hunter22"}),
		"oauth2.token_url: has a user":                     token(OAuth2{TokenURL: "https://u:hunter22@h/", ClientID: "a", ClientSecret: "b"}),
		"oauth2.client_id: required":                       token(OAuth2{TokenURL: "https://h/", ClientSecret: "b"}),
		"oauth2.client_secret: required":                   token(OAuth2{TokenURL: "https://h/", ClientID: "b"}),

		"sign.secrets: item 1: must begin with whsec_ (HMAC) or whsk_ (ed25519)": func(c *Config) { c.Sign.Secrets = []string{"hunter22"} },
		"headers.webhook-signature: pacer sets this header itself": func(c *Config) {
			c.Sign.Secrets, c.Headers = []string{secretOf("a")}, map[string]string{"webhook-signature": "x"}
		},

		// Templates. A value that any host would get must not be a secret.
		"url: a template must be all of it, or begin":       func(c *Config) { c.URL = `http{{ .ID }}://example.com/` },
		"url: a template must be all of it":                 func(c *Config) { c.URL = `https://example.com?a={{ .ID }}` },
		"url: begins with http://":                          func(c *Config) { c.URL = `http://{{ .ID }}.example.com/` },
		"url: refused by the sink's guard: port 8443 is":    func(c *Config) { c.URL = `https://{{ .ID }}.example.com:8443/` },
		"url: refused by the sink's guard: port 80 is not":  func(c *Config) { c.URL, c.Guard.AllowHTTP = `http://{{ .ID }}.example.com/`, true },
		"url: refused by the sink's guard: the host":        func(c *Config) { c.URL = `https://{{ .ID }}.0.0.1/` },
		"url: its port must be between":                     func(c *Config) { c.URL = `https://{{ .ID }}.example.com:99999/` },
		"url: has a user":                                   func(c *Config) { c.URL = `https://u:hunter22@{{ .ID }}.example.com/` },
		"url: must begin with http://":                      func(c *Config) { c.URL = `ftp://example.com/{{ .ID }}` },
		"url: line 1: unclosed action":                      func(c *Config) { c.URL = `https://example.com/?a={{ .ID` },
		"headers.x-a: line 1: function \"env\" not defined": header("x-a", "{{ env }}"),
		"body: line 1: unexpected":                          func(c *Config) { c.Body = "{{ end }}" },
		"method: not available; use POST, PUT,":             func(c *Config) { c.Method = "get" },
		"body: a GET has none":                              func(c *Config) { c.Method, c.Body = "GET", "x" },
		"bearer: would be sent to any host":                 func(c *Config) { c.URL, c.Bearer = `https://example.{{ .ID }}/`, "hunter22" },
		"basic: would be sent to any host":                  func(c *Config) { c.URL, c.Basic = `{{ .Header "to" }}`, Basic{"u", "p"} },
		"oauth2: would be sent": func(c *Config) {
			c.URL, c.OAuth2 = `https://{{ .ID }}.com/`, OAuth2{TokenURL: "https://id.example/", ClientID: "a", ClientSecret: "b"}
		},
		"headers.authorization: would be": func(c *Config) {
			c.URL, c.Headers = `https://{{ .ID }}/`, map[string]string{"Authorization": "hunter22"}
		},
		"guard.ports: required":      func(c *Config) { c.URL, c.Guard.Ports = `{{ .Header "to" }}`, nil },
		"guard.allow: item 1 is not": func(c *Config) { c.URL, c.Guard.Allow = `{{ .Header "to" }}`, []string{"x"} },
		// Events.
		"cloudevents: structured makes the body": func(c *Config) { c.CloudEvents, c.Body = "structured", "x" },
		"cloudevents: a GET has no body":         func(c *Config) { c.CloudEvents, c.Method = "structured", "GET" },
		"cloudevents: structured has a content":  func(c *Config) { c.CloudEvents, c.Headers = "structured", map[string]string{"content-type": "a/b"} },
		// Destinations of a table.
		"secrets_dir: is for":   func(c *Config) { c.SecretsDir = "/run" },
		"disable_after: is for": func(c *Config) { c.DisableAfter = time.Hour },
	})
	table := func() *Config {
		c := Default()
		c.Destinations = true
		return c
	}
	sinktest.Problems(t, table, map[string]func(*Config){
		"url: with destinations": func(c *Config) { c.URL = "https://a.example/" },
		"bearer: would be sent to any host that a job names; remove it, and give it to those destinations that need it": func(c *Config) { c.Bearer = "hunter22" },
		"sign.secrets: each destination": func(c *Config) { c.Sign.Secrets = []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} },
		"guard.ports: required":          func(c *Config) { c.Guard.Ports = nil },
	})
	for secret, shown := range map[string]string{
		"https://u:p@example.com/a/{{ .ID }}?token=x": "https://example.com/a/{{ .ID }}", "{{ .ID }}": "(made of the job)",
		"https://{{ .ID }}.example.com/a?token=x": "https://{{ .ID }}.example.com/a", "https://u:p@{{ .ID }}.example.com/": "(not a URL)",
	} {
		if got := Redacted(secret); got != shown {
			t.Errorf("%s is shown as %s", secret, got)
		}
	}
}
