package http

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/sink/base"
)

func TestProblems(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string // prefix of the only problem; "" for none
	}{
		{"default", func(*Config) {}, ""},
		{"no url", func(c *Config) { c.URL = "" }, "url: required;"},
		{"no scheme", func(c *Config) { c.URL = "localhost:9000" }, "url: must begin with http://"},
		{"other scheme", func(c *Config) { c.URL = "ftp://a/b" }, "url: must begin with http://"},
		{"no host", func(c *Config) { c.URL = "http:///x" }, "url: names no host"},
		{"unparsable", func(c *Config) { c.URL = "http://u:hunter22@a:b/" }, "url: not a URL"},
		{"port", func(c *Config) { c.URL = "http://a:99999/" }, "url: its port"},
		{"fragment", func(c *Config) { c.URL = "http://a/#x" }, "url: has a #fragment"},
		{"certificate without a key", func(c *Config) { c.CertFile = "x" }, "cert_file: goes together with key_file"},
		{"header", func(c *Config) { c.Headers = map[string]string{"Authorization": "Bearer x"} }, ""},
		{"header name", func(c *Config) { c.Headers = map[string]string{"a b": "x"} }, "headers.a b: not a header name"},
		{"header value", func(c *Config) { c.Headers = map[string]string{"a": "x\ny"} }, "headers.a: not a header value"},
		{"the same header", func(c *Config) { c.Headers = map[string]string{"X-a": "{{ .ID }}", "x-A": "x"} }, "headers.x-A: is there twice, also as X-a"},
		{"own header", func(c *Config) { c.Headers = map[string]string{"idempotency-key": "x"} }, "headers.idempotency-key: pacer sets"},
		{"own prefix", func(c *Config) { c.Headers = map[string]string{"pacer-x": "x"} }, "headers.pacer-x: pacer sets"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Default()
			c.URL = "http://127.0.0.1:9000/deliver"
			tt.change(c)
			p := c.Problems()
			switch {
			case tt.want == "" && len(p) > 0:
				t.Errorf("problems %q", p)
			case tt.want != "" && (len(p) != 1 || !strings.HasPrefix(p[0], tt.want)):
				t.Errorf("problems %q, want one beginning with %q", p, tt.want)
			}
			if strings.Contains(strings.Join(p, ""), "hunter22") {
				t.Errorf("a problem repeats a password: %q", p)
			}
			if _, err := New(c, base.Host{}); (err != nil) != (tt.want != "") {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestConfigPrintsNoSecrets(t *testing.T) {
	c := &Config{URL: "http://me:hunter22@a/p?q=swordfish", Common: Common{Headers: map[string]string{"X-Key": "opensesame"}}}
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), c.LogValue().String()} {
		for _, secret := range []string{"hunter22", "swordfish", "opensesame"} {
			if strings.Contains(s, secret) {
				t.Errorf("%s", s)
			}
		}
	}
}
